"""Pods leave a node that is to be repaired, on a real cluster."""

from dataclasses import replace

import pytest
from controlled import controlled, installed
from hypothesis import given
from hypothesis import strategies as st
from real_cluster import until

from holdfast.adapters.kubernetes.nodes.drain import UNCOUNTED
from holdfast.adapters.kubernetes.nodes.idle_nodes import IdleNodes
from holdfast.adapters.kubernetes.nodes.pods import is_holdfast, leaving_pods
from holdfast.model.health import Urgency
from holdfast.model.names import CONFIG
from holdfast.model.nodes import Phase
from tests.ports.builders import a_record, a_remediation

__all__ = ["installed"]

JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
OFF = "node.cloudprovider.kubernetes.io/shutdown=:NoSchedule"
NODES = ("node-1", "node-2")
SLOW = {"terminationGracePeriodSeconds": 3600}


@pytest.fixture
def one(installed, cluster):
    with controlled(cluster) as one:
        one.join("node-1")
        one.seen("node-1")
        yield one


def names(one) -> set[str]:
    items = one.api.list("/api/v1/namespaces/default/pods")
    return {pod["metadata"]["name"] for pod in items}


def running(one) -> set[str]:
    items = one.api.list("/api/v1/namespaces/default/pods")
    return {pod["metadata"]["name"] for pod in items if pod["status"].get("phase") == "Running"}


def drained(one) -> bool:
    """A round of the engine as far as draining goes; whether the node is empty."""
    view = one.view("node-1")
    if view.running_jobs:
        one.cluster.drain("node-1")
    return not view.running_jobs


def test_the_pods_of_a_node_are_counted_while_that_matters(one) -> None:
    one.pod("a", "node-1")
    assert one.view("node-1").running_jobs == ()

    deferred = a_remediation(urgency=Urgency.DEFERRED)
    one.cluster.put("node-1", a_record(Phase.QUARANTINED, remediation=deferred))
    assert one.view("node-1").running_jobs == UNCOUNTED
    one.woken.clear()
    one.seen("node-1", lambda view: view.running_jobs == ("default/a",))
    assert one.woken.is_set()
    assert names(one) == {"a"}

    one.api.delete("/api/v1/namespaces/default/pods/a", grace=0)
    one.seen("node-1", lambda view: view.running_jobs == ())


def test_an_idle_node_is_found_although_other_calls_ask_for_other_nodes(one) -> None:
    one.join("node-2")
    one.pod("a", "node-1")
    nodes = IdleNodes(one.api, limit=1, own="holdfast")

    found = [nodes.among(due, NODES) for due in (NODES, (), NODES, ("node-1",), NODES)]

    assert found == [set(), set(), {"node-2"}, set(), {"node-2"}]
    assert nodes.pods("node-1") == ("default/a",)


def workload(kind: str, version: str, name: str, **spec) -> dict:
    labels = {"app": name}
    pod = {
        "nodeSelector": {"kubernetes.io/hostname": "node-1"},
        "restartPolicy": "Never" if kind == "Job" else "Always",
        "terminationGracePeriodSeconds": 0,
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "c", "image": "none"}],
    }
    template = {"metadata": {"labels": labels}, "spec": pod}
    metadata = {"name": name}
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": metadata,
        "spec": {"template": template, **spec},
    }


def test_a_drain_evicts_what_may_go_and_nothing_else(one) -> None:
    one.real.nodes.join("node-2")
    batch, apps = "/apis/batch/v1/namespaces/default", "/apis/apps/v1/namespaces/default"
    one.api.create(f"{batch}/jobs", workload("Job", "batch/v1", "train"))
    selector = {"matchLabels": {"app": "daemon"}}
    one.api.create(
        f"{apps}/daemonsets", workload("DaemonSet", "apps/v1", "daemon", selector=selector)
    )
    one.pod("alone", "node-1")
    one.pod("elsewhere", "node-2")
    one.pod("ended", "node-1", restartPolicy="Never")
    one.real.nodes.finish("ended")
    until(lambda: len(running(one)) == 4)
    before = running(one)
    one.cluster.put("node-1", a_record(Phase.DRAINING))

    until(lambda: drained(one))

    left = running(one) & before
    assert {name.partition("-")[0] for name in left} == {"daemon", "elsewhere"}
    assert "ended" in names(one)
    assert ("node-1", "train") in one.evicted


def test_nobody_is_evicted_who_was_not_asked_to_leave(one) -> None:
    one.pod("a", "node-1")
    one.cluster.put("node-1", a_record(Phase.DRAINING))

    one.seen("node-1", lambda view: view.running_jobs == ("default/a",))

    assert names(one) == {"a"}


def test_nobody_is_evicted_by_who_may_not_act(one) -> None:
    one.pod("a", "node-1")
    one.cluster.put("node-1", a_record(Phase.DRAINING))
    one.view("node-1")
    one.acts = False
    one.cluster.drain("node-1")

    one.seen("node-1", lambda view: view.running_jobs == ("default/a",))
    one.api.patch("/api/v1/namespaces/default/pods/a", {"metadata": {"labels": {"seen": "yes"}}})

    assert names(one) == {"a"}


def test_a_disruption_budget_is_respected_until_it_has_room(one) -> None:
    one.pod("a", "node-1", metadata={"labels": {"app": "x"}})
    one.real.kubectl("create", "pdb", "x", "--selector=app=x", "--min-available=1")
    one.cluster.put("node-1", a_record(Phase.DRAINING))
    until(lambda: not drained(one) and one.view("node-1").running_jobs == ("default/a",))
    looks = [drained(one) for _ in range(3)]
    assert looks == [False] * 3
    assert one.phase_of("a") == "Running"
    assert one.evicted == []

    one.real.kubectl("delete", "pdb", "x")

    until(lambda: drained(one))
    assert names(one) == set()
    assert one.events.reported == []


def test_a_held_node_keeps_its_pods(one) -> None:
    one.pod("a", "node-1", **SLOW)
    one.cluster.put("node-1", a_record(Phase.DRAINING))
    one.view("node-1")
    one.annotate("node-1", **{"holdfast.dev/hold": "wait"})
    one.seen("node-1", lambda view: view.pause_reason)

    one.seen("node-1", lambda view: view.running_jobs == ("default/a",))

    (pod,) = one.api.list("/api/v1/namespaces/default/pods")
    assert "deletionTimestamp" not in pod["metadata"]


def test_a_pod_that_ends_slowly_has_not_left_yet(one) -> None:
    one.real.nodes.hang("node-1")
    one.pod("a", "node-1", phase="Pending", **SLOW)
    one.cluster.put("node-1", a_record(Phase.DRAINING))

    until(lambda: not drained(one) and "deletionTimestamp" in _metadata(one))

    assert one.view("node-1").running_jobs == ("default/a",)
    assert names(one) == {"a"}


def test_pods_of_a_machine_that_is_off_are_removed(one) -> None:
    one.real.nodes.hang("node-1")
    one.pod("a", "node-1", phase="Pending", **SLOW)
    one.cluster.put("node-1", a_record(Phase.REPLACING, remediation=a_remediation(repairs=1)))
    one.view("node-1")
    assert names(one) == {"a"}

    one.real.kubectl("taint", "node", "node-1", OFF)
    until(lambda: one.view("node-1").powered_on is False and not names(one))


def test_pods_of_a_node_that_was_released_are_left_alone(one) -> None:
    one.pod("a", "node-1", **SLOW)
    one.cluster.put("node-1", a_record(Phase.DRAINING))
    one.view("node-1")
    one.cluster.put("node-1", a_record())
    one.view("node-1")

    one.cluster.drain("node-1")
    one.cluster.put("node-1", a_record(Phase.DRAINING))
    one.seen("node-1", lambda view: view.running_jobs == ("default/a",))

    assert "deletionTimestamp" not in _metadata(one)


def test_what_cannot_be_drained_is_reported_once(one) -> None:
    one.pod("a", "node-1", metadata={"labels": {"app": "x"}}, **SLOW)
    for name in ("x", "y"):  # the API server evicts nobody for whom two budgets count
        one.real.kubectl("create", "pdb", name, "--selector=app=x", "--min-available=0")
    one.cluster.put("node-1", a_record(Phase.DRAINING))

    until(lambda: not drained(one) and one.events.reported)
    drained(one)

    assert one.events.names() == ["engine.call_failed"]
    assert "default/a" in one.events.reported[0].error


def _metadata(one) -> dict:
    (pod,) = one.api.list("/api/v1/namespaces/default/pods")
    return pod["metadata"]


# which pods leave


def a_pod(*, owner=None, phase="Running", mirror=False, deleted=False, name="a"):
    metadata = {"namespace": "ns", "name": name, "uid": "u"}
    if owner is not None:
        metadata["ownerReferences"] = [{**JOB, "kind": owner}]
    if mirror:
        metadata["annotations"] = {"kubernetes.io/config.mirror": "x"}
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": metadata, "status": {"phase": phase} if phase else {}}


@given(
    st.sampled_from([None, "Job", "DaemonSet"]),
    st.sampled_from(["", "Pending", "Running", "Unknown", "Succeeded", "Failed"]),
    st.booleans(),
    st.booleans(),
)
def test_daemons_mirrors_and_those_that_ended_stay(owner, phase, mirror, deleted) -> None:
    stays = owner == "DaemonSet" or mirror or phase in ("Succeeded", "Failed")

    found = leaving_pods([a_pod(owner=owner, phase=phase, mirror=mirror, deleted=deleted)])

    assert bool(found) is not stays
    for pod in found:
        assert str(pod) == "ns/a"
        assert pod.is_terminating is deleted
        assert (pod.owner is not None) is (owner is not None)


def test_an_owner_that_does_not_control_a_pod_does_not_count() -> None:
    pod = a_pod(owner="DaemonSet")
    pod["metadata"]["ownerReferences"][0]["controller"] = False

    (found,) = leaving_pods([pod])

    assert found.owner is None


def test_pods_are_in_a_lasting_order() -> None:
    assert [pod.name for pod in leaving_pods([a_pod(name="b"), a_pod(name="a")])] == ["a", "b"]
    assert replace(leaving_pods([a_pod()])[0], name="b").path.endswith("/namespaces/ns/pods/b")


@pytest.mark.parametrize(
    ("annotations", "namespace", "is_own"),
    [({CONFIG: "x"}, "ns", True), ({CONFIG: "x"}, "other", False), ({}, "ns", False)],
)
def test_only_pods_of_holdfasts_release_are_its_own(annotations, namespace, is_own) -> None:
    pod = a_pod()
    pod["metadata"]["annotations"] = annotations

    assert is_holdfast(pod, namespace) is is_own
