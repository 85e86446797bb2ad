"""Events of the engine as Kubernetes Events."""

from datetime import timedelta

import pytest
from controlled import api_of, installed
from hypothesis import given
from hypothesis import strategies as st
from real_cluster import until

from holdfast.adapters.kubernetes.nodes.events import (
    KINDS,
    KubernetesEvents,
    event_object,
    eviction_notice,
    node_notice,
)
from holdfast.adapters.kubernetes.nodes.pods import PodOwner
from holdfast.model import events
from holdfast.model.events import (
    BreakerTripped,
    CallFailed,
    Event,
    InputRejected,
    JobFinished,
    NodeDrillActive,
    NodeQuarantined,
    NodeReleased,
)
from tests.ports.builders import NOW
from tests.ports.fakes import FakeClock

__all__ = ["installed"]

QUARANTINED = NodeQuarantined(node="node-1", reason="Why", remedy="reboot", message="evidence")
RELEASED = NodeReleased(node="node-1", after="Why")
ABOUT_NODES = [
    kind
    for kind in vars(events).values()
    if isinstance(kind, type)
    and issubclass(kind, Event)
    and kind.name.startswith(("node.", "repair."))
]


@pytest.fixture
def api(installed, cluster):
    api = api_of(cluster)
    yield api
    api.close()


@pytest.fixture
def clock():
    return FakeClock(NOW)


@pytest.fixture
def sink(api, clock):
    sink = KubernetesEvents(api, clock, namespace="holdfast", memory="state")
    sink.start()
    yield sink
    sink.stop()


def reported(api, count, namespace="default"):
    """The Events of a namespace that are ours, once there are so many."""
    found = []

    def are_there() -> bool:
        everything = api.list(f"/api/v1/namespaces/{namespace}/events")
        found[:] = [e for e in everything if e["source"].get("component") == "holdfast-controller"]
        return len(found) >= count

    until(are_there)
    return found


def test_every_event_about_a_node_is_reported() -> None:
    assert set(KINDS) == set(ABOUT_NODES) - {NodeDrillActive}, "agents write that one themselves"
    assert len(KINDS) >= 12
    assert all(kind.reason[0].isupper() and kind.reason.isalpha() for kind in KINDS.values())
    assert {kind.type for kind in KINDS.values()} == {"Normal", "Warning"}


def test_a_message_says_what_happened_and_what_happens_next() -> None:
    notice = node_notice(QUARANTINED, NOW)

    assert notice.message == (
        "node-1 quarantined for reboot: Why: evidence; no new pods are "
        "placed; it is drained when the budget allows"
    )


def test_events_about_no_node_are_not_reported() -> None:
    assert node_notice(CallFailed(what="x", error="y"), NOW) is None
    assert node_notice(JobFinished(job="j", outcome="o", reason="r"), NOW) is None
    assert node_notice(InputRejected(node="", key="k", value="v", expected="e"), NOW) is None


@given(st.text(max_size=2000), st.text(min_size=1, max_size=400))
def test_an_event_is_never_larger_than_the_api_takes(message, name) -> None:
    notice = node_notice(NodeQuarantined(node=name, reason="", remedy="", message=message), NOW)

    content = event_object(notice, NOW, 1)

    assert len(content["message"].encode()) <= 1024
    assert len(content["metadata"]["name"]) <= 253


def test_people_see_them_in_the_description_of_a_node(sink, api, cluster) -> None:
    cluster.nodes.join("node-1")

    sink.emit(QUARANTINED)
    sink.emit(RELEASED)
    reported(api, 2)

    lines = cluster.kubectl("describe", "node", "node-1").splitlines()
    (warning,) = [line for line in lines if "NodeQuarantined" in line]
    assert warning.split()[0] == "Warning"
    assert "node-1 quarantined for reboot" in warning
    assert any(line.split()[:2] == ["Normal", "NodeReleased"] for line in lines)


def test_what_is_reported_again_is_counted(sink, api, clock) -> None:
    for _ in range(3):
        sink.emit(QUARANTINED)
        clock.time += timedelta(seconds=1)
    sink.emit(RELEASED)

    found = {event["reason"]: event for event in reported(api, 2)}
    assert len(found) == 2
    until(lambda: {e["reason"]: e["count"] for e in reported(api, 2)}["NodeQuarantined"] == 3)
    (again,) = [e for e in reported(api, 2) if e["reason"] == "NodeQuarantined"]
    assert again["firstTimestamp"] == "2026-01-01T12:00:00Z"
    assert again["lastTimestamp"] == "2026-01-01T12:00:02Z"


@pytest.mark.parametrize(("pause", "count"), [(600, 1), (601, 2)])
def test_after_ten_minutes_it_is_another_event(sink, api, clock, pause, count) -> None:
    sink.emit(QUARANTINED)
    clock.time += timedelta(seconds=pause)
    sink.emit(QUARANTINED)
    sink.emit(RELEASED)

    reported(api, count + 1)
    assert [e["reason"] for e in reported(api, count + 1)].count("NodeQuarantined") == count


def test_an_event_that_the_server_forgot_is_reported_anew(sink, api) -> None:
    sink.emit(QUARANTINED)
    (first,) = reported(api, 1)
    api.delete(f"/api/v1/namespaces/default/events/{first['metadata']['name']}")

    sink.emit(QUARANTINED)

    (again,) = reported(api, 1)
    assert again["count"] == 1


def test_the_breaker_is_reported_beside_the_state(sink, api) -> None:
    sink.emit(BreakerTripped(reason="a storm"))

    (event,) = reported(api, 1, "holdfast")
    assert (event["reason"], event["type"]) == ("BreakerTripped", "Warning")
    assert event["involvedObject"]["kind"] == "ConfigMap"
    assert "a storm" in event["message"]


def test_a_job_that_loses_a_pod_is_reported(sink, api) -> None:
    job = PodOwner(api_version="batch/v1", kind="Job", namespace="default", name="train", uid="u")
    sink.evicted("node-1", job)

    (event,) = reported(api, 1)
    assert (event["reason"], event["type"]) == ("NodeFault", "Warning")
    assert event["involvedObject"]["name"] == "train"
    assert event["message"].startswith("found unhealthy node node-1")
    assert eviction_notice("node-1", job, NOW).message == event["message"]


def test_an_event_that_is_not_wanted_holds_up_no_other(sink, api) -> None:
    nowhere = PodOwner(api_version="v1", kind="Pod", namespace="no-such", name="p", uid="u")
    sink.evicted("node-1", nowhere)
    sink.emit(RELEASED)

    assert [event["reason"] for event in reported(api, 1)] == ["NodeReleased"]


def test_a_right_that_is_missing_is_named_until_it_is_given(installed, cluster, clock) -> None:
    token = cluster.plane.service_account_token("default", "default")
    api = api_of(cluster, token)
    sink = KubernetesEvents(api, clock, namespace="holdfast", memory="state")
    sink.start()

    sink.emit(RELEASED)
    until(lambda: '"resources": ["events"], "verbs": ["create"]' in sink.error)
    cluster.kubectl(
        *("create", "clusterrolebinding", "events", "--clusterrole=cluster-admin"),
        "--serviceaccount=default:default",
    )

    def is_written() -> bool:
        sink.emit(RELEASED)
        return sink.error == ""

    until(is_written)
    sink.stop()
    api.close()


def test_what_is_reported_while_the_server_is_away_is_sent_when_it_is_back(
    sink, api, cluster
) -> None:
    cluster.plane.stop_api_server()
    sink.emit(QUARANTINED)
    cluster.plane.start_api_server()

    reported(api, 1)


def test_nobody_waits_for_events_that_cannot_be_sent(installed, clock, cluster) -> None:
    api = api_of(cluster, timeout=timedelta(seconds=1))
    sink = KubernetesEvents(api, clock, namespace="holdfast", memory="state")
    for number in range(3000):
        sink.emit(NodeReleased(node=f"node-{number}", after=""))
    cluster.plane.stop_api_server()
    sink.start()

    sink.stop()

    api.close()
    cluster.plane.start_api_server()
