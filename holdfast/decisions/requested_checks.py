"""Deep health checks that people request: which may begin now, and what the others wait for.

Such a check is planned work. It takes its node out of service within the budget for repairs, idle
nodes first, and leaves jobs alone unless the request says otherwise.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from holdfast.decisions.faults import request_fault
from holdfast.decisions.lifecycle import is_borrowed, is_out_of_service
from holdfast.decisions.policy import RemediationPolicy
from holdfast.model.actions import Deferred, Quarantine
from holdfast.model.health import Remedy, Urgency
from holdfast.model.names import Condition
from holdfast.model.nodes import NodeRecord, NodeView, Phase
from holdfast.model.requests import Request, Verb

POLL: Final = timedelta(seconds=10)
"""How often it is looked whether the jobs have left that a check waits for."""

_NAMED: Final = 3
"""Jobs that a message names."""


def is_requested_check(request: Request | None) -> bool:
    """Whether a person requests a deep health check; one for a suspicion of ours is no such."""
    return request is not None and request.verb is Verb.DEEP_CHECK and request.reason is None


def awaits_check(record: NodeRecord, request: Request | None) -> bool:
    """Whether a node in service has a requested check that has not begun.

    A platform has to find out of such a node whether it is idle.
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
    """The nodes whose requested checks begin now, and why the others wait.

    Args:
        members: nodes of the cluster; healthy ones without a request may be missing.
        busy: names of nodes with which something else is done now; those that are to be drained
            have their place in the budget before any check.
        policy: the limits.
        size: number of nodes that the limits are shares of.
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
    away = sum(_is_away(node) or node.name in busy for node in nodes)
    checking = sum(node.record.phase is Phase.CHECKING or _is_planned(node) for node in nodes)
    taken: list[Quarantine] = []
    deferred: list[Deferred] = []
    for node, request in sorted(waiting, key=_idle_first):
        why = blocked or _own_reason(node, request)
        why = why or _no_room(away + len(taken), checking + len(taken), policy, size)
        fault = request_fault(request)
        if why or fault is None:
            deferred.append(Deferred(node=node.name, why=why, is_check=True))
        else:
            taken.append(
                Quarantine(node=node.name, fault=fault, remedy=Remedy.NONE, request_id=request.id)
            )
    return taken, deferred


def named_jobs(jobs: Sequence[str]) -> str:
    """The jobs that something waits for, in a message."""
    if not jobs:
        return "its jobs"
    more = len(jobs) - _NAMED
    names = ", ".join(sorted(jobs)[:_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"{'job' if len(jobs) == 1 else 'jobs'} {names}"


def _own_reason(node: NodeView, request: Request) -> str:
    """What of the node itself keeps its check from beginning; empty if nothing does."""
    if node.held:
        return f"the end of its hold: {node.held}"
    if node.is_idle or request.urgency is Urgency.IMMEDIATE:
        return ""
    return named_jobs(node.running_jobs)


def _no_room(away: int, checking: int, policy: RemediationPolicy, size: int) -> str:
    """Which limit keeps another check from beginning; empty if none does."""
    allowed = policy.max_unavailable.of(size)
    if away >= allowed:
        return f"the unavailable-node budget: {away} of {allowed} nodes out of service"
    allowed = policy.max_checking.of(size)
    if checking >= allowed:
        return f"other deep health checks: {checking} of {allowed} running"
    return ""


def _idle_first(item: tuple[NodeView, Request]) -> tuple[bool, datetime, str]:
    node, request = item
    return (not node.is_idle, request.requested_at, node.name)


def _is_away(node: NodeView) -> bool:
    return is_out_of_service(node.record) or _is_planned(node)


def _is_planned(node: NodeView) -> bool:
    """Whether planned work has its place in the budget and has not begun to drain."""
    record = node.record
    return (
        record.phase is Phase.QUARANTINED
        and record.remediation is not None
        and record.remediation.condition == Condition.REQUESTED
        and not is_borrowed(record)
    )
