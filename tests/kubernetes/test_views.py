"""What the core gets to see of a node."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from node_objects import CONVENTIONS, DEEP, LABELS, a_node_object, a_report, node_objects, state_of

from holdfast.adapters.kubernetes.client.values import compact_json
from holdfast.adapters.kubernetes.nodes.encoding import ParsedAnnotations, parse_annotations
from holdfast.adapters.kubernetes.nodes.heartbeats import NodeLease
from holdfast.adapters.kubernetes.nodes.node import arrivals
from holdfast.adapters.kubernetes.nodes.views import (
    LastHeartbeats,
    agent_heartbeat_at,
    is_fenced,
    is_managed,
    kubelet_answered_at,
    node_view,
    record_of,
)
from holdfast.decisions.lifecycle import waits_for_jobs
from holdfast.model.health import Urgency
from holdfast.model.names import RECORD, REPLACES, REPORT
from holdfast.model.nodes import Phase
from tests.ports.builders import NOW, a_fault, a_record, a_remediation

LEASED = NOW - timedelta(minutes=3)
SINCE = datetime(2026, 1, 1, 11, 30, tzinfo=UTC)
CREATED = datetime(2026, 1, 1, 11, 0, tzinfo=UTC)
IS_OFF = {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}


def read(**changes):
    state = state_of(a_node_object(**changes))
    return state, parse_annotations(state, CONVENTIONS, NOW)


HEARD = LastHeartbeats(agent_at=NOW, kubelet_at=NOW)


def view(**changes):
    state, parsed = read(**changes)
    return node_view(state, parsed, record_of(state, parsed, NOW), heartbeats=HEARD)


def lease(**changes):
    values = {"renewed_at": LEASED, "holder": "boot-1", "observed_at": LEASED, "is_live": True}
    return NodeLease(**{**values, **changes})


def answered_at(phase, *, leased=True, **changes):
    state, _ = read(**changes)
    return kubelet_answered_at(state, a_record(phase), NOW, lease() if leased else None)


def observed_at(phase, *, lease=None, since=None, **changes):
    state, parsed = read(**changes)
    return agent_heartbeat_at(state, parsed, a_record(phase), lease, since)


@given(node_objects())
def test_every_node_can_be_seen(node) -> None:
    state = state_of(node)
    parsed = parse_annotations(state, CONVENTIONS, NOW)
    record = record_of(state, parsed, NOW)
    heartbeats = LastHeartbeats(
        agent_at=agent_heartbeat_at(state, parsed, record, None, NOW),
        kubelet_at=kubelet_answered_at(state, record, NOW, None),
    )

    seen = node_view(state, parsed, record, heartbeats=heartbeats)

    assert (seen.name, seen.provider_id, seen.record) == ("node-1", "i-1", record)


@pytest.mark.parametrize(
    ("changes", "managed"),
    [
        ({}, False),
        ({"annotations": {REPORT: a_report()}}, True),
        ({"annotations": {RECORD: compact_json(a_record())}}, True),
        ({"annotations": {REPLACES: "old"}}, True),
        ({"annotations": {REPORT: "{"}}, False),
        ({"annotations": {RECORD: "{", REPORT: a_report()}}, False),
        (
            {
                "annotations": {REPORT: a_report()},
                "labels": {"node-role.kubernetes.io/control-plane": ""},
            },
            False,
        ),
    ],
)
def test_only_nodes_that_are_ours_are_looked_after(changes, managed) -> None:
    assert is_managed(*read(**changes)) is managed


def test_a_node_without_a_record_joins() -> None:
    state, parsed = read()

    assert record_of(state, parsed, CREATED - timedelta(1)) == a_record(
        Phase.JOINING, phase_since=CREATED
    )
    assert record_of(state, parsed, NOW).phase_since == NOW


@pytest.mark.parametrize("label", [DEEP, LABELS.deep_health_check])
def test_a_deep_check_that_was_passed_before_us_counts_by_either_spelling(label) -> None:
    assert view(labels={label: "Passed"}).record.checked_machine == "i-1#boot-1"
    assert view(labels={label: "InProgress"}).record.checked_machine == ""


def test_a_machine_without_a_provider_is_known_by_its_node() -> None:
    assert view(provider_id=None).provider_id == "kubernetes://uid-of-node-1"


@pytest.mark.parametrize(
    ("reported", "kubelet", "shown", "counts"),
    [
        ("boot-1", "boot-1", "boot-1", True),
        ("boot-1", "", "boot-1", True),
        ("boot-1", "boot-2", "boot-1", False),
    ],
)
def test_faults_count_in_the_boot_in_which_they_were_reported(
    reported, kubelet, shown, counts
) -> None:
    fault = a_fault()

    seen = view(boot_id=kubelet, annotations={REPORT: a_report(fault, boot_id=reported)})

    assert seen.boot_id == shown
    assert seen.faults == ((fault,) if counts else ())


def test_the_kubelets_boot_counts_until_the_agent_speaks() -> None:
    assert view(boot_id="boot-7").boot_id == "boot-7"


STAYING = [
    Phase.SCHEDULABLE,
    Phase.CHECKING,
    Phase.QUARANTINED,
    Phase.DRAINING,
    Phase.REPLACING,
]
COMING = [Phase.JOINING, Phase.REBOOTING]


@pytest.mark.parametrize("phase", STAYING)
def test_a_kubelet_answers_until_the_node_controller_gives_it_up(phase) -> None:
    assert answered_at(phase, ready="True") == NOW
    assert answered_at(phase, ready="False") == NOW
    assert answered_at(phase, ready="Unknown") == LEASED
    assert answered_at(phase, ready="Unknown", leased=False) == SINCE
    assert answered_at(phase, ready="", leased=False) == CREATED


@pytest.mark.parametrize("phase", COMING)
def test_the_kubelet_of_a_node_that_comes_answers_once_it_is_ready_or_not(phase) -> None:
    assert answered_at(phase, ready="True") == NOW
    assert answered_at(phase, ready="False") == NOW
    assert answered_at(phase, ready="Unknown") is None


@pytest.mark.parametrize("phase", [*STAYING, *COMING])
@pytest.mark.parametrize("ready", ["True", "False", "Unknown"])
def test_a_ready_kubelet_is_no_heartbeat_of_an_agent(phase, ready) -> None:
    assert observed_at(phase, ready=ready, since=NOW) is None


@pytest.mark.parametrize("phase", COMING)
def test_the_agent_of_a_node_that_comes_is_heard_when_it_reports_in_this_boot(phase) -> None:
    reported = {REPORT: a_report(boot_id="boot-1")}

    assert observed_at(phase, lease=lease()) is None
    assert observed_at(phase, annotations=reported, since=NOW) is None
    assert observed_at(phase, annotations=reported, lease=lease()) == LEASED
    assert observed_at(phase, annotations=reported, lease=lease(), boot_id="boot-2") is None
    assert observed_at(phase, annotations=reported, lease=lease(holder="boot-0")) is None
    assert observed_at(phase, annotations=reported, lease=lease(is_live=False)) is None


@pytest.mark.parametrize("phase", STAYING)
def test_an_agent_that_joined_before_us_is_heard_by_its_lease_or_since_we_began(phase) -> None:
    reported = {REPORT: a_report(boot_id="boot-1")}
    later = LEASED + timedelta(seconds=1)

    assert observed_at(phase, annotations=reported, since=later) == later
    assert observed_at(phase, annotations=reported, lease=lease(), since=later) == later
    assert (
        observed_at(phase, annotations=reported, lease=lease(observed_at=NOW), since=later) == NOW
    )
    assert observed_at(phase, annotations=reported, lease=lease()) == LEASED
    assert observed_at(phase, annotations=reported) is None


@pytest.mark.parametrize(("ready", "shown"), [("True", True), ("False", False), ("Unknown", False)])
def test_a_node_accepts_jobs_while_its_kubelet_is_ready(ready, shown) -> None:
    assert view(ready=ready).is_ready is shown


@pytest.mark.parametrize(
    "key",
    ["node.cloudprovider.kubernetes.io/shutdown", "node.kubernetes.io/out-of-service"],
)
def test_a_machine_is_off_when_its_owner_says_so(key) -> None:
    assert view(taints=[{"key": key, "effect": "NoSchedule"}]).powered_on is False
    assert view().powered_on is None


@pytest.mark.parametrize(
    ("record", "followed"),
    [
        (a_record(), False),
        (a_record(Phase.QUARANTINED), False),
        (a_record(Phase.QUARANTINED, remediation=a_remediation(urgency=Urgency.DEFERRED)), True),
        (a_record(Phase.DRAINING), True),
        (a_record(Phase.REBOOTING, remediation=a_remediation(urgency=Urgency.DEFERRED)), False),
    ],
)
def test_pods_matter_while_a_repair_waits_for_them(record, followed) -> None:
    assert waits_for_jobs(record) is followed


@pytest.mark.parametrize(
    ("record", "boot_id", "taints", "fenced"),
    [
        (a_record(Phase.DRAINING), "boot-1", [], False),
        (a_record(Phase.DRAINING), "boot-1", [IS_OFF], True),
        (a_record(Phase.REPLACING), "boot-1", [IS_OFF], True),
        (a_record(), "boot-1", [IS_OFF], False),
        (a_record(Phase.REPLACING), "boot-1", [], False),
        (
            a_record(Phase.REPLACING, remediation=a_remediation(is_machine_removed=True)),
            "boot-1",
            [],
            True,
        ),
        (
            a_record(Phase.JOINING, remediation=a_remediation(is_machine_removed=True)),
            "boot-1",
            [],
            False,
        ),
        (a_record(Phase.REBOOTING), "boot-1", [], False),
        (a_record(Phase.REBOOTING), "boot-2", [], True),
    ],
)
def test_a_node_is_fenced_when_nothing_from_before_can_run(record, boot_id, taints, fenced) -> None:
    state, _ = read(boot_id=boot_id, taints=taints)

    assert is_fenced(state, ParsedAnnotations(), record) is fenced


@pytest.mark.parametrize(
    "taken",
    [
        {"annotations": {RECORD: compact_json(a_record())}},
        {"annotations": {REPLACES: "another"}},
        {"labels": {"node-role.kubernetes.io/control-plane": ""}},
    ],
)
def test_only_a_worker_without_record_and_predecessor_is_free_to_replace_another(taken) -> None:
    assert [one.is_free for one in arrivals([state_of(a_node_object())])] == [True]
    assert [one.is_free for one in arrivals([state_of(a_node_object(**taken))])] == [False]
