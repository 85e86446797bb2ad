"""A person holds a repair: it waits, and all that is no repair goes on."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import example, given
from test_cluster_laws import clusters

from holdfast.decisions.policy import RemediationPolicy
from holdfast.decisions.remediation import decide
from holdfast.model.actions import Deferred, Drain, Quarantine, Reboot, Rejoin, Release, Replace
from holdfast.model.health import Remedy, Urgency
from holdfast.model.names import Reason
from holdfast.model.nodes import Phase
from holdfast.model.requests import Verb
from tests.ports.builders import NOW, a_cluster, a_fault, a_node, a_remediation, a_request

POLICY = RemediationPolicy()
LATE = timedelta(days=1)
FAULTS = (a_fault(),)


def decided(node, **changes):
    return decide(a_cluster(replace(node, pause_reason="saving its disk", **changes)), POLICY, NOW)


@pytest.mark.parametrize(
    "node",
    [
        a_node(Phase.QUARANTINED, faults=FAULTS),
        a_node(Phase.QUARANTINED, faults=FAULTS, request=a_request(Verb.REPLACE), record={
            "remediation": a_remediation(
                Remedy.REPLACE, condition="RequestedByUser", request_id="request-1"
            )
        }),
        a_node(Phase.DRAINING, faults=FAULTS),
        a_node(Phase.DRAINING, faults=(a_fault(Remedy.REPLACE),), record={
            "remediation": a_remediation(Remedy.REPLACE)
        }),
        a_node(Phase.REBOOTING, record={
            "remediation": a_remediation(ordered_at=NOW - LATE, machine="i-1#boot-1")
        }),
        a_node(Phase.REPLACING, record={
            "remediation": a_remediation(Remedy.REPLACE, machine="i-1#boot-1")
        }),
    ],
)  # fmt: skip
def test_no_repair_begins_on_a_held_node_and_it_says_why(node) -> None:
    assert decide(a_cluster(node), POLICY, NOW).actions != ()

    plan = decided(node)

    assert plan.actions == ()
    assert plan.deferred == (
        Deferred(node="node-1", why="repairs paused by an operator: saving its disk"),
    )


@pytest.mark.parametrize(
    ("node", "kind"),
    [
        (a_node(faults=FAULTS), Quarantine),
        (a_node(Phase.JOINING), Release),
        (a_node(Phase.QUARANTINED), Release),
        (a_node(Phase.QUARANTINED, faults=FAULTS, request=a_request(Verb.RELEASE)), Release),
        (a_node(Phase.REBOOTING, boot_id="boot-2"), Rejoin),
    ],
)
def test_all_that_is_no_repair_goes_on(node, kind) -> None:
    assert [type(action) for action in decided(node).actions] == [kind]


def is_paused(action: object) -> bool:
    """Whether an action waits while repairs are paused: a repair, or a requested check."""
    if isinstance(action, Quarantine):
        return action.fault.reason == Reason.REQUESTED_DEEP_CHECK
    return isinstance(action, Drain | Reboot | Replace)


def test_a_requested_check_of_a_held_node_waits_too() -> None:
    node = a_node(request=a_request(Verb.DEEP_CHECK, urgency=Urgency.IMMEDIATE))
    assert [is_paused(one) for one in decide(a_cluster(node), POLICY, NOW).actions] == [True]

    plan = decided(node)

    assert plan.actions == ()
    assert [one.why for one in plan.deferred] == ["repairs to be resumed on it (saving its disk)"]


@given(clusters())
@example(a_cluster(a_node(request=a_request(Verb.DEEP_CHECK, urgency=Urgency.IMMEDIATE))))
def test_holding_a_node_stops_its_repair_and_its_requested_check_alone(cluster) -> None:
    held = replace(cluster, nodes=tuple(replace(node, pause_reason="x") for node in cluster.nodes))

    before, after = decide(cluster, POLICY, NOW), decide(held, POLICY, NOW)

    assert after.actions == tuple(action for action in before.actions if not is_paused(action))
    assert after.trip == before.trip
