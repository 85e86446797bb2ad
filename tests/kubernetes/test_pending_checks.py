"""Deep health checks that do not begin: no evidence about their node, and why they wait."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from controlled import NAMESPACE, Controlled, controlled, installed
from hypothesis import given
from hypothesis import strategies as st
from real_cluster import until

from holdfast.adapters.kubernetes.checks.check_jobs import CheckJob, PairIds, check_job
from holdfast.adapters.kubernetes.checks.check_pods import LONGEST, CheckPods, check_pod
from holdfast.adapters.kubernetes.checks.deep_checks import DeepChecks
from holdfast.adapters.kubernetes.client.api import Api, Server
from holdfast.adapters.kubernetes.settings import CheckSettings, KubernetesSettings
from holdfast.decisions.faults import check_fault
from holdfast.decisions.policy import RemediationPolicy
from holdfast.model.errors import BackendError
from holdfast.model.events import CallFailed
from holdfast.model.nodes import Pairing, Phase
from tests.ports.builders import a_record

__all__ = ["installed"]

CHECK = CheckSettings(image="checker:1")
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
QUOTAS = f"/api/v1/namespaces/{NAMESPACE}/resourcequotas"
POLICY = RemediationPolicy()
CREATED = datetime(2026, 1, 1, tzinfo=UTC)
SOON = timedelta(milliseconds=100)
MESSAGE = 'Back-off pulling image "checker:1": ErrImagePull: not found'


@pytest.fixture
def one(installed, cluster) -> Iterator[Controlled]:
    with controlled(cluster, KubernetesSettings(check=CHECK)) as one:
        one.join("node-1")
        one.seen("node-1")
        yield one


@contextmanager
def checks(one: Controlled) -> Iterator[DeepChecks]:
    """Checks that report at once why they wait."""
    made = DeepChecks(
        one.api, NAMESPACE, CHECK, lambda: None, one.events, again=SOON, begins=timedelta(0)
    )
    for reflector in made.reflectors:
        reflector.start()
    try:
        until(lambda: all(reflector.synced for reflector in made.reflectors))
        yield made
    finally:
        for reflector in made.reflectors:
            reflector.stop()


def quota(one: Controlled, resource: str) -> None:
    """No more objects of a kind may be created in the namespace of the checks."""
    about = {"name": "none", "namespace": NAMESPACE}
    one.api.create(QUOTAS, {"metadata": about, "spec": {"hard": {resource: "0"}}})
    until(lambda: one.api.get(f"{QUOTAS}/none").get("status", {}).get("used"))


def pods_of(one: Controlled) -> list[dict[str, Any]]:
    return list(one.api.list(PODS))


def waits(one: Controlled, pod: str, reason: str, message: str) -> None:
    """The kubelet reports that the container cannot be started."""
    state = {"waiting": {"reason": reason, "message": message}}
    status = {
        "phase": "Pending",
        "containerStatuses": [{"name": "check", "image": "checker:1", "imageID": "", "ready": False,
                               "restartCount": 0, "state": state}],
    }  # fmt: skip
    one.api.patch(f"{PODS}/{pod}/status", {"status": status})


def test_a_check_whose_image_cannot_be_pulled_has_not_failed_and_begins_when_it_can(one) -> None:
    record = a_record(Phase.CHECKING, phase_since=datetime.now(UTC) - timedelta(days=1))
    one.cluster.put("node-1", record)
    one.real.nodes.hang("node-1")
    one.cluster.start_check("node-1", record.phase_since.isoformat(), ())
    until(lambda: pods_of(one))
    pod = pods_of(one)[0]["metadata"]["name"]
    one.seen("node-1", lambda view: view.check_pending == "its pod waits")
    waits(one, pod, "ImagePullBackOff", MESSAGE)

    waiting = one.seen("node-1", lambda view: "ImagePullBackOff" in view.check_pending)

    assert waiting.check_pending == f"its pod waits (ImagePullBackOff: {MESSAGE})"
    assert waiting.check_began_at is None
    assert check_fault(waiting, POLICY, datetime.now(UTC)) is None

    before = datetime.now(UTC) - timedelta(seconds=1)  # the API rounds to seconds
    one.real.nodes.resume("node-1")
    running = one.seen("node-1", lambda view: not view.check_pending)

    assert before <= running.check_began_at <= datetime.now(UTC)
    assert check_fault(running, POLICY, running.check_began_at) is None
    ends_at = running.check_began_at + POLICY.deep_check_timeout
    assert check_fault(running, POLICY, ends_at - timedelta(microseconds=1)) is None
    assert check_fault(running, POLICY, ends_at) is not None


def test_a_check_whose_pod_a_quota_forbids_waits_with_the_message_of_the_quota(one) -> None:
    quota(one, "pods")
    record = a_record(Phase.CHECKING)
    with checks(one) as made:

        def pending() -> str:
            made.begin("node-1", record.phase_since.isoformat())
            made.refresh(datetime.now(UTC))
            return made.state("node-1", record).pending

        until(lambda: "exceeded quota" in pending())
        assert pending().startswith("its Job has no pod (FailedCreate: Error creating: pods ")

        one.api.delete(f"{QUOTAS}/none")
        until(lambda: not pending())
        assert made.state("node-1", record).began_at is not None
    reported = [one for one in one.events.reported if isinstance(one, CallFailed)]
    assert [event.what for event in reported] == ["the deep health check of node-1"]
    assert reported[0].error.startswith("it has not begun: its Job has no pod")


def test_a_check_whose_job_is_refused_waits_with_the_message_of_the_api_server(one) -> None:
    quota(one, "count/jobs.batch")
    record = a_record(Phase.CHECKING)
    one.cluster.put("node-1", record)
    assert one.view("node-1").check_pending == "its Job was not created yet"

    with pytest.raises(BackendError, match="exceeded quota"):
        one.cluster.start_check("node-1", record.phase_since.isoformat(), ())

    pending = one.view("node-1").check_pending
    assert pending.startswith("its Job was not created (POST /apis/batch/v1/")
    assert "exceeded quota" in pending


def test_a_test_between_nodes_whose_peer_does_not_begin_has_no_verdict(one) -> None:
    began = datetime.now(UTC)
    pairing = Pairing(since=began, partner="node-2", began_at=began)
    record = a_record(Phase.CHECKING, pairing=pairing)
    one.join("node-2")
    one.real.nodes.hang("node-2")
    with checks(one) as made:
        made.start_pair(PairIds("node-1", "node-2", began.isoformat()), "10.0.0.2")
        until(lambda: len(pods_of(one)) == 2)
        until(lambda: any(pod["status"].get("phase") == "Running" for pod in pods_of(one)))

        def outcome():
            made.refresh(datetime.now(UTC))
            return made.pair_outcome("node-1", record)

        until(lambda: outcome() is not None and "its pod waits" in outcome().detail)

        assert outcome().passed is None
        one.real.nodes.resume("node-2")
        until(lambda: outcome() is None)
        assert made.state("node-1", record).began_at is not None


# What the status of a pod names

WAITING = {"waiting": {"reason": "ImagePullBackOff", "message": MESSAGE}}
CREATING = {"waiting": {"reason": "ContainerCreating"}}
INITIALIZING = {"waiting": {"reason": "PodInitializing"}}
RUNNING = {"running": {"startedAt": "2026-01-01T00:00:05Z"}}


def a_pod(uid: str = "p", version: int = 1, **status: Any) -> dict[str, Any]:
    owner = {"kind": "Job", "uid": "j", "controller": True}
    about = {
        "name": uid,
        "namespace": NAMESPACE,
        "uid": uid,
        "resourceVersion": str(version),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [owner],
    }
    return {"metadata": about, "status": status}


def containers(**states: Any) -> list[dict[str, Any]]:
    return [{"name": name, "state": state} for name, state in states.items()]


UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
}


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        ({}, ""),
        ({"phase": "Pending", "containerStatuses": containers(check=CREATING)}, ""),
        ({"conditions": [UNSCHEDULABLE]}, f"Unschedulable: {UNSCHEDULABLE['message']}"),
        ({"conditions": [{**UNSCHEDULABLE, "status": "True"}]}, ""),
        ({"containerStatuses": containers(check=WAITING)}, f"ImagePullBackOff: {MESSAGE}"),
        ({"containerStatuses": containers(check=RUNNING, other=WAITING)},
         f"ImagePullBackOff: {MESSAGE}"),
        ({"initContainerStatuses": containers(mesh=WAITING),
          "containerStatuses": containers(check=INITIALIZING)},
         f"init container mesh: ImagePullBackOff: {MESSAGE}"),
        ({"initContainerStatuses": containers(mesh=RUNNING),
          "containerStatuses": containers(check=INITIALIZING)},
         "init container mesh has not ended"),
        ({"initContainerStatuses": [{"name": "mesh", "started": True, "state": RUNNING}],
          "containerStatuses": containers(check=CREATING)}, ""),
        ({"phase": "Failed", "reason": "OutOfnvidia.com/gpu", "message": "Node didn't have enough"},
         "OutOfnvidia.com/gpu: Node didn't have enough"),
    ],
)  # fmt: skip
def test_the_cause_is_what_the_status_names(status, cause) -> None:
    assert check_pod(a_pod(**status)).cause == cause


@given(text=st.text(max_size=2000))
def test_a_cause_is_one_line_of_bounded_length(text) -> None:
    state = {"waiting": {"reason": "ErrImagePull", "message": text}}
    cause = check_pod(a_pod(containerStatuses=containers(check=state))).cause

    assert len(cause) <= LONGEST
    assert cause.isprintable()


def test_only_the_container_of_the_check_makes_it_begin() -> None:
    pod = check_pod(a_pod(containerStatuses=containers(mesh=RUNNING, check=CREATING)))
    assert not pod.has_begun
    assert check_pod(a_pod(containerStatuses=containers(mesh=CREATING, check=RUNNING))).has_begun


# When a check began, whatever the clocks

JOB = check_job({"metadata": {"name": "n", "uid": "j"}})


def known() -> CheckPods:
    api = Api(Server(url="http://127.0.0.1:1"), user_agent="test", field_manager="test")
    return CheckPods(api, NAMESPACE, lambda: None, warn_every=timedelta(days=1))


def running_since(clock: datetime) -> list[dict[str, Any]]:
    return containers(check={"running": {"startedAt": clock.isoformat()}})


@given(
    skew=st.timedeltas(timedelta(days=-400), timedelta(days=400)),
    observed=st.timedeltas(timedelta(0), timedelta(days=2)),
)
def test_a_wrong_clock_of_the_node_does_not_move_the_start_before_its_pod(skew, observed) -> None:
    pods, now = known(), CREATED + observed
    pods.reflector.learn(a_pod(containerStatuses=running_since(CREATED + skew)))

    pods.refresh([JOB], now)

    is_possible = timedelta(0) <= skew <= observed
    assert pods.began_at(JOB) == (CREATED + skew if is_possible else now)
    assert pods.pending(JOB) == ""


@given(skew=st.timedeltas(timedelta(days=-400), timedelta(days=400)))
def test_a_check_that_was_seen_to_wait_began_after_that(skew) -> None:
    pods, now = known(), CREATED + timedelta(hours=4)
    pods.reflector.learn(a_pod(containerStatuses=containers(check=CREATING)))
    pods.refresh([JOB], now)
    assert pods.began_at(JOB) is None
    assert pods.pending(JOB) == "its pod waits"

    pods.reflector.learn(a_pod(version=2, containerStatuses=running_since(CREATED + skew)))
    pods.refresh([JOB], now)

    assert now - timedelta(seconds=1) <= pods.began_at(JOB) <= now


def test_the_clock_of_this_machine_may_be_set_while_a_check_runs() -> None:
    pods = known()
    pods.reflector.learn(a_pod(containerStatuses=running_since(CREATED - timedelta(days=9))))
    pods.refresh([JOB], CREATED)

    for now in (CREATED, CREATED + timedelta(days=9)):
        pods.refresh([JOB], now)
        assert now - timedelta(seconds=10) <= pods.began_at(JOB) < now


def test_a_suspended_job_waits_for_whoever_suspended_it() -> None:
    job: CheckJob = check_job({"metadata": {"name": "n", "uid": "j"}, "spec": {"suspend": True}})

    assert known().pending(job) == "its Job is suspended"
