"""Nodes whose agent is silent while their scheduler's daemon (kubelet, slurmd) responds."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from holdfast.decisions.faults import IN_REPAIR, agent_fault
from holdfast.decisions.policy import RemediationPolicy
from holdfast.model.actions import (
    Deferred,
    NodeAction,
    Quarantine,
    Release,
    SetAgentCondition,
    Wait,
)
from holdfast.model.names import Condition
from holdfast.model.nodes import NodeRecord, NodeView, Phase, Remediation

_TOO_MANY: Final = (
    "its agent is silent, but it stays in service: max_unavailable nodes are cordoned for silent"
    " agents already; check the installation of the agents"
)


_SILENT: Final = frozenset((Condition.NODE_LOST, Condition.AGENT_SILENT))
"""Conditions of remediations that end with a report."""


def is_known_silent(record: NodeRecord) -> bool:
    """Return whether a node or its agent was found silent, and has not reported since.

    Another node may count as heard when a controller starts: what it reported before is unknown.
    This one does not, or it would return to service until its next timeout.
    """
    remediation = record.remediation
    is_lost = remediation is not None and remediation.condition in _SILENT
    return is_lost or record.agent_silent_since is not None


def is_agent_silent(remediation: Remediation) -> bool:
    """Return whether a node is out of service because its agent is silent."""
    return remediation.condition == Condition.AGENT_SILENT


def is_checked_since(record: NodeRecord) -> bool:
    """Return whether a node with a silent agent passed a deep check in its present remediation."""
    remediation = record.remediation
    if remediation is None or not is_agent_silent(remediation) or not record.checks:
        return False
    last = record.checks[-1]
    return last.passed and last.ended_at >= remediation.opened_at


def agent_condition_change(
    node: NodeView, choice: NodeAction | Wait, policy: RemediationPolicy, now: datetime
) -> SetAgentCondition | None:
    """Return the change of the agent's condition to publish before ``choice``; None for none.

    Actions that repair the machine go first. The condition is cleared when the agent reports again,
    not when the scheduler's daemon becomes silent, too.
    """
    is_urgent = not isinstance(choice, Wait | Release) and not _is_cordon(choice)
    if is_urgent or node.record.phase in IN_REPAIR:
        return None
    silent = agent_fault(node, policy, now)
    published_since = node.record.agent_silent_since
    if silent is not None and published_since is None:
        return SetAgentCondition(node=node.name, silent_since=silent.since)
    if published_since is not None and _reports(node, policy, now):
        return SetAgentCondition(node=node.name, silent_since=None)
    return None


def within_silent_limit(
    actions: Iterable[NodeAction], members: Sequence[NodeView], allowed: int
) -> tuple[list[NodeAction], list[Deferred]]:
    """Return the actions without cordons that would leave more than ``allowed`` such nodes out."""
    cordoned = sum(
        node.record.remediation is not None and is_agent_silent(node.record.remediation)
        for node in members
    )
    in_service = {node.name for node in members if node.record.phase is Phase.SCHEDULABLE}
    cordons, taken = [], []
    for action in actions:
        if _is_cordon(action) and action.node in in_service:
            cordons.append(action)
        else:
            taken.append(action)
    cordons.sort(key=lambda action: action.node)
    room = max(0, allowed - cordoned)
    deferred = [Deferred(node=action.node, why=_TOO_MANY) for action in cordons[room:]]
    return [*taken, *cordons[:room]], deferred


def _is_cordon(choice: NodeAction | Wait) -> bool:
    return isinstance(choice, Quarantine) and choice.fault.condition == Condition.AGENT_SILENT


def _reports(node: NodeView, policy: RemediationPolicy, now: datetime) -> bool:
    at = node.heartbeat_at
    return at is not None and now < at + policy.heartbeat_timeout
