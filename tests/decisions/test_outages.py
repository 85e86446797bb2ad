"""Deadlines of what an outage of the platform may have kept back."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.faults import AFTER_OUTAGE, observed_deadline
from holdfast.decisions.policy import RemediationPolicy
from holdfast.decisions.remediation import decide
from holdfast.model.actions import NodeAction, Pair, Reboot, Replace
from holdfast.model.nodes import ClusterView, NodeView, Pairing, Phase
from tests.ports.builders import NOW, a_fault, a_node, a_record, a_remediation

TICK = timedelta(microseconds=1)
POLICY = RemediationPolicy(deep_check_pairs=True, heartbeat_timeout=timedelta(days=1))
LONG_AGO = NOW - timedelta(days=10)
ORDERED = {"remediation": a_remediation(machine="i-1#boot-1", ordered_at=LONG_AGO)}
JOINING = a_node(Phase.JOINING, heartbeat_at=None, record={"phase_since": LONG_AGO})
REBOOTING = a_node(Phase.REBOOTING, heartbeat_at=None, record=ORDERED)
REPLACING = a_node(Phase.REPLACING, heartbeat_at=None, record=ORDERED)
CHECKING = a_node(Phase.CHECKING, record={"phase_since": LONG_AGO})
PAIRED = a_node(
    Phase.CHECKING,
    record={"pairing": Pairing(since=LONG_AGO, partner="node-2", began_at=LONG_AGO)},
)
DRAINING = a_node(
    Phase.DRAINING,
    faults=(a_fault(),),
    running_jobs=("a",),
    heartbeat_at=NOW,
    record={"phase_since": LONG_AGO},
)
REFUSED = a_node(
    Phase.REBOOTING,
    heartbeat_at=None,
    record={
        "phase_since": LONG_AGO,
        "remediation": a_remediation(machine="i-1#boot-1", retry_at=NOW - 2 * TICK),
    },
)
PEER = replace(
    PAIRED,
    name="node-2",
    provider_id="i-2",
    record=a_record(Phase.CHECKING, pairing=Pairing(since=LONG_AGO)),
)


def actions(node: NodeView, policy: RemediationPolicy, now: datetime) -> tuple[NodeAction, ...]:
    nodes = (node, PEER) if node.record.pairing else (node,)
    return decide(ClusterView(nodes=nodes), policy, now).actions


def test_without_an_outage_all_of_them_are_overdue() -> None:
    for node in (JOINING, REBOOTING, REPLACING, CHECKING, PAIRED, DRAINING, REFUSED):
        assert len(actions(node, POLICY, NOW)) == 1


@pytest.mark.parametrize(
    ("node", "setting"),
    [
        (JOINING, "join_timeout"),
        (REBOOTING, "reboot_timeout"),
        (REPLACING, "replace_timeout"),
        (CHECKING, "deep_check_timeout"),
        (PAIRED, "pair_timeout"),
        (DRAINING, "drain_timeout"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
@pytest.mark.parametrize("timeout", [timedelta(minutes=1), AFTER_OUTAGE, timedelta(minutes=10)])
def test_after_an_outage_a_node_has_time_to_report(
    node: NodeView, setting: str, timeout: timedelta
) -> None:
    policy = replace(POLICY, **{setting: timeout})
    node = replace(node, observed_since=NOW - min(timeout, AFTER_OUTAGE))

    assert actions(node, policy, NOW - TICK) == ()
    (action,) = actions(node, policy, NOW)
    assert not isinstance(action, Pair) or action.pairing.tests[0].passed is False


@pytest.mark.parametrize("timeout", [timedelta(minutes=1), AFTER_OUTAGE, timedelta(minutes=10)])
def test_after_an_outage_a_refused_reboot_is_ordered_again(timeout: timedelta) -> None:
    policy = replace(POLICY, reboot_timeout=timeout)
    node = replace(REFUSED, observed_since=NOW - min(timeout, AFTER_OUTAGE))

    assert [type(one) for one in actions(node, policy, NOW - TICK)] == [Reboot]
    assert [type(one) for one in actions(node, policy, NOW)] == [Replace]


@given(
    due=st.timedeltas(timedelta(days=-2), timedelta(days=2)),
    timeout=st.timedeltas(TICK, timedelta(days=2)),
    seen=st.none() | st.timedeltas(timedelta(days=-2), timedelta(0)),
)
def test_an_outage_never_moves_a_deadline_forward_and_by_no_more_than_its_timeout(
    due: timedelta, timeout: timedelta, seen: timedelta | None
) -> None:
    since = None if seen is None else NOW + seen
    found = observed_deadline(replace(JOINING, observed_since=since), NOW + due, timeout)

    assert found >= NOW + due
    if since is not None:
        assert found <= max(NOW + due, since + timeout)
