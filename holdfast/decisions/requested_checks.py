"""Deep health checks that people request: which start now, and what the others wait for.

Such a check is planned work. It takes its node out of service within the budget for repairs, idle
nodes first, and does not interrupt jobs unless the request is immediate.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from holdfast.decisions.faults import request_fault
from holdfast.decisions.node_labels import is_borrowed, is_out_of_service
from holdfast.decisions.planned_work import is_requested_check
from holdfast.decisions.policy import RemediationPolicy
from holdfast.model.actions import Deferred, Quarantine
from holdfast.model.health import Remedy, Urgency
from holdfast.model.names import Condition
from holdfast.model.nodes import NodeRecord, NodeView, Phase
from holdfast.model.requests import Request

POLL: Final = timedelta(seconds=10)
"""Interval of checking whether the jobs that a check waits for have ended."""

_NAMED: Final = 3
"""Maximum number of jobs that a message names."""


def awaits_check(record: NodeRecord, request: Request | None) -> bool:
    """Return whether a node in service has a requested check that has not begun.

    A platform has to determine whether such a node is idle.
    """
    return record.phase is Phase.SCHEDULABLE and is_requested_check(request)


def requested_checks(
    members: Iterable[NodeView],
    busy: Collection[str],
    policy: RemediationPolicy,
    *,
    size: int,
    blocked: str,
) -> tuple[list[Quarantine], list[Deferred]]:
    """Return the quarantines of nodes whose requested checks start now, and the deferred others.

    Args:
        members: nodes of the cluster; healthy ones without a request may be missing.
        busy: names of nodes that have another action in this round; nodes to be drained take their
            place in the budget before any check.
        policy: policy with the limits.
        size: number of nodes of which the limits are shares.
        blocked: why no planned work may begin; empty if it may.

    """
    nodes = list(members)
    waiting = [
        (node, node.request)
        for node in nodes
        if node.request is not None
        and awaits_check(node.record, node.request)
        and node.name not in busy
    ]
    if not waiting:
        return [], []
    unavailable = sum(
        is_out_of_service(node.record) or _is_planned(node) or node.name in busy for node in nodes
    )
    checking = sum(_is_to_check(node) for node in nodes)
    taken: list[Quarantine] = []
    deferred: list[Deferred] = []
    for node, request in sorted(waiting, key=_idle_first):
        why = blocked or _own_reason(node, request)
        why = why or _exhausted_limit(unavailable + len(taken), checking + len(taken), policy, size)
        fault = request_fault(request)
        if why or fault is None:
            deferred.append(Deferred(node=node.name, why=why, is_check=True))
        else:
            taken.append(
                Quarantine(node=node.name, fault=fault, remedy=Remedy.NONE, request_id=request.id)
            )
    return taken, deferred


def named_jobs(jobs: Sequence[str]) -> str:
    """Return the jobs that something waits for, for a message."""
    if not jobs:
        return "its jobs"
    more = len(jobs) - _NAMED
    names = ", ".join(sorted(jobs)[:_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"{'job' if len(jobs) == 1 else 'jobs'} {names}"


def _own_reason(node: NodeView, request: Request) -> str:
    """Return why the state of the node itself defers its check; empty if it does not."""
    if node.pause_reason:
        return f"repairs to be resumed on it ({node.pause_reason})"
    if node.is_idle or request.urgency is Urgency.IMMEDIATE:
        return ""
    return named_jobs(node.running_jobs)


def _exhausted_limit(unavailable: int, checking: int, policy: RemediationPolicy, size: int) -> str:
    """Return which limit defers another check; empty if none does."""
    allowed = policy.max_unavailable.of(size)
    if unavailable >= allowed:
        return f"the unavailable-node budget: {unavailable} of {allowed} nodes out of service"
    allowed = policy.max_checking.of(size)
    if checking >= allowed:
        return f"other deep health checks: {checking} of {allowed} running"
    return ""


def _idle_first(item: tuple[NodeView, Request]) -> tuple[bool, datetime, str]:
    node, request = item
    return (not node.is_idle, request.requested_at, node.name)


def _is_planned(node: NodeView) -> bool:
    """Return whether a node counts against the budget for planned work but is not drained yet."""
    return node.record.phase is Phase.QUARANTINED and _is_requested(node.record)


def _is_to_check(node: NodeView) -> bool:
    """Return whether a node is under check, or will be once it is drained."""
    if node.record.phase is Phase.DRAINING:
        remediation = node.record.remediation
        is_for_check = remediation is not None and remediation.remedy is Remedy.NONE
        return is_for_check and _is_requested(node.record)
    return node.record.phase is Phase.CHECKING or _is_planned(node)


def _is_requested(record: NodeRecord) -> bool:
    remediation = record.remediation
    is_by_request = remediation is not None and remediation.condition == Condition.REQUESTED
    return is_by_request and not is_borrowed(record)
