"""Events of the actions on nodes."""

from datetime import datetime

from holdfast.model.actions import (
    Drain,
    NodeAction,
    Pair,
    Quarantine,
    Reassign,
    Reboot,
    Rejoin,
    Release,
    Replace,
    Retire,
    SetAgentCondition,
    StartCheck,
)
from holdfast.model.deep_checks import Outcome
from holdfast.model.events import (
    Event,
    NodeAgentReports,
    NodeAgentSilent,
    NodeCheckBegun,
    NodeCheckFailed,
    NodeCheckPassed,
    NodeCheckSkipped,
    NodeDraining,
    NodePairTested,
    NodeQuarantined,
    NodeReassigned,
    NodeRejoined,
    NodeReleased,
    NodeReplaced,
    RepairOrdered,
)
from holdfast.model.nodes import NodeRecord, NodeView, Pairing


def event_of(action: NodeAction, node: NodeView) -> Event | None:
    """Return the event for ``action`` on ``node``, in its state before the action, if any."""
    remediation = node.record.remediation
    reason = remediation.reason if remediation is not None else ""
    name = node.name
    match action:
        case Quarantine(fault=fault, remedy=remedy):
            return NodeQuarantined(
                node=name, reason=fault.reason, remedy=remedy, message=fault.message
            )
        case Reassign(fault=fault, remedy=remedy):
            return NodeReassigned(
                node=name, reason=fault.reason, remedy=remedy, message=fault.message
            )
        case Drain():
            return NodeDraining(node=name)
        case Reboot():
            return RepairOrdered(node=name, remedy="reboot", reason=reason)
        case Replace():
            return RepairOrdered(node=name, remedy="replace", reason=action.reason)
        case Rejoin():
            return NodeRejoined(node=name)
        case Retire(successor=successor):
            return NodeReplaced(node=name, successor=successor)
        case StartCheck():
            return NodeCheckBegun(node=name)
        case Pair(pairing=pairing):
            return _tested(name, node.record.pairing, pairing)
        case Release():
            return NodeReleased(node=name, after=reason)
        case SetAgentCondition(silent_since=since):
            silent = since and NodeAgentSilent(node=name, since=since)
            return silent or NodeAgentReports(node=name)


def _tested(node: str, before: Pairing | None, after: Pairing) -> Event | None:
    """Return the event of the test that ended, if one did."""
    if before is None or len(after.tests) == len(before.tests):
        return None
    last = after.tests[-1]
    return NodePairTested(
        node=node,
        partner=last.partner,
        passed=last.passed,
        detail=last.detail,
        measured=last.measured,
    )


def check_ended(node: NodeView, record: NodeRecord, now: datetime) -> Event | None:
    """Return the event of the check that ended with the new ``record``; None if none did."""
    if record.checks == node.record.checks or not record.checks:
        return None
    check, took = record.checks[-1], now - node.record.phase_since
    if check.outcome is Outcome.PASSED:
        return NodeCheckPassed(
            node=node.name, detail=check.remarks, measured=check.measured, took=took
        )
    if check.passed:
        return NodeCheckSkipped(node=node.name, detail=check.remarks, took=took)
    return NodeCheckFailed(node=node.name, detail=check.detail, measured=check.measured, took=took)
