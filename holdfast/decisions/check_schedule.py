"""Scheduled deep health checks of idle nodes, one node at a time."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from holdfast.decisions.policy import RemediationPolicy
from holdfast.model.actions import Quarantine
from holdfast.model.health import Fault, Remedy, Severity, Urgency
from holdfast.model.names import Condition, Reason
from holdfast.model.nodes import NodeRecord, NodeView, Phase


def is_checked_by_policy(group: str, policy: RemediationPolicy) -> bool:
    """Return whether nodes of an instance group get deep health checks without a request."""
    return not policy.deep_check_groups or group in policy.deep_check_groups


def check_due_at(group: str, record: NodeRecord, policy: RemediationPolicy) -> datetime | None:
    """Return when a node is due for its next scheduled check; None for never.

    The check starts once no job runs on the node. For a node that was never checked, the interval
    starts when it becomes schedulable.
    """
    if policy.deep_check_every is None or record.phase is not Phase.SCHEDULABLE:
        return None
    if not is_checked_by_policy(group, policy):
        return None
    last = record.checks[-1].ended_at if record.checks else record.phase_since
    return last + policy.deep_check_every


def is_check_due(group: str, record: NodeRecord, policy: RemediationPolicy, now: datetime) -> bool:
    """Return whether a node is to be checked as soon as it is idle."""
    due_at = check_due_at(group, record, policy)
    return due_at is not None and now >= due_at


def next_check_at(
    nodes: Iterable[NodeView], policy: RemediationPolicy, now: datetime
) -> datetime | None:
    """Return when the next node becomes due; None if no node will.

    Nodes that are already due do not count: each round checks whether they are idle.
    """
    if policy.deep_check_every is None:
        return None
    due = (check_due_at(node.group, node.record, policy) for node in nodes)
    return min((at for at in due if at is not None and at > now), default=None)


def scheduled_check(
    nodes: Sequence[NodeView], busy: Collection[str], policy: RemediationPolicy, now: datetime
) -> list[Quarantine]:
    """Return the quarantine of the idle node that has been due longest.

    The list is empty while another node is under a scheduled check, and if no node is due.

    Args:
        nodes: nodes of the cluster; healthy ones with jobs may be missing.
        busy: names of nodes that have another action in this round.
        policy: policy with the interval.
        now: current time.

    """
    if policy.deep_check_every is None or any(map(_is_taken, nodes)):
        return []
    waiting = [
        (due_at, node.name)
        for node in nodes
        if node.is_idle
        and not node.pause_reason
        and node.name not in busy
        and (due_at := check_due_at(node.group, node.record, policy)) is not None
    ]
    due_at, name = min(waiting, default=(now, ""))
    if not name or now < due_at:
        return []
    fault = Fault(
        family="node",
        condition=Condition.REQUESTED,
        reason=Reason.SCHEDULED_DEEP_CHECK,
        severity=Severity.FATAL,
        remedy=Remedy.NONE,
        message="no job runs on it, and its scheduled deep health check is due",
        since=now,
        urgency=Urgency.DEFERRED,  # a job that starts on it right now runs to its end
    )
    return [Quarantine(node=name, fault=fault, remedy=Remedy.NONE)]


def _is_taken(node: NodeView) -> bool:
    remediation = node.record.remediation
    return remediation is not None and remediation.reason == Reason.SCHEDULED_DEEP_CHECK
