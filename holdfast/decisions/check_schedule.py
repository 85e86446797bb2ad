"""Deep health checks of nodes that wait for work, one after the other."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from holdfast.decisions.policy import RemediationPolicy
from holdfast.model.actions import Quarantine
from holdfast.model.health import Fault, Remedy, Severity, Urgency
from holdfast.model.names import Condition, Reason
from holdfast.model.nodes import NodeRecord, NodeView, Phase


def is_checked_unasked(group: str, policy: RemediationPolicy) -> bool:
    """Whether nodes of an instance group are checked without being asked for."""
    return not policy.deep_check_groups or group in policy.deep_check_groups


def check_due_at(group: str, record: NodeRecord, policy: RemediationPolicy) -> datetime | None:
    """When a node should be checked again, if no job runs on it then; None for never.

    A node that was never checked is due from its first day of work on.
    """
    if policy.deep_check_every is None or record.phase is not Phase.SCHEDULABLE:
        return None
    if not is_checked_unasked(group, policy):
        return None
    last = record.checks[-1].ended_at if record.checks else record.phase_since
    return last + policy.deep_check_every


def is_check_due(group: str, record: NodeRecord, policy: RemediationPolicy, now: datetime) -> bool:
    """Whether a node is to be checked as soon as it is idle."""
    due_at = check_due_at(group, record, policy)
    return due_at is not None and now >= due_at


def next_check_at(
    nodes: Iterable[NodeView], policy: RemediationPolicy, now: datetime
) -> datetime | None:
    """When the next node will be due; None if none will.

    Those that are due already do not count: whether they are idle is seen as time goes by.
    """
    if policy.deep_check_every is None:
        return None
    due = (check_due_at(node.group, node.record, policy) for node in nodes)
    return min((at for at in due if at is not None and at > now), default=None)


def scheduled_check(
    nodes: Sequence[NodeView], busy: Collection[str], policy: RemediationPolicy, now: datetime
) -> list[Quarantine]:
    """Take the idle node that is due longest; none while another is taken, or if none is due.

    Args:
        nodes: those of the cluster; healthy ones with jobs may be missing.
        busy: names of those with which something else is done now.
        policy: says how often.
        now: the time.

    """
    if policy.deep_check_every is None or any(map(_is_taken, nodes)):
        return []
    waiting = [
        (due_at, node.name)
        for node in nodes
        if node.is_idle
        and not node.held
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
        message="no job runs on it, and its last deep health check was long ago",
        since=now,
        urgency=Urgency.DEFERRED,  # a job that is placed on it in this moment runs to its end
    )
    return [Quarantine(node=name, fault=fault, remedy=Remedy.NONE)]


def _is_taken(node: NodeView) -> bool:
    remediation = node.record.remediation
    return remediation is not None and remediation.reason == Reason.SCHEDULED_DEEP_CHECK
