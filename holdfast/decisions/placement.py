"""Nodes that a job may run on, and those that it gets."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from holdfast.decisions.faults import node_faults
from holdfast.decisions.planned_work import is_requested_check
from holdfast.decisions.policy import RecoveryMode, RemediationPolicy
from holdfast.model.job_views import JobView
from holdfast.model.nodes import NodeView, Phase


def reserved(
    nodes: Mapping[str, NodeView], job: str, placement: Iterable[str]
) -> Mapping[str, NodeView]:
    """Return ``nodes`` with ``job`` on those of ``placement``, whether or not its ranks run yet."""
    taken = {
        name: replace(nodes[name], running_jobs=(*nodes[name].running_jobs, job))
        for name in placement
        if name in nodes and job not in nodes[name].running_jobs
    }
    return {**nodes, **taken}


def usable(
    nodes: Iterable[NodeView], job: str, policy: RemediationPolicy, now: datetime
) -> tuple[NodeView, ...]:
    """Return the nodes that ``job`` may start on now.

    They are schedulable and not leaving, without a fault, a request or another job. A requested
    check that has not begun does not block a node: it waits for jobs.
    """
    return tuple(
        sorted(
            (
                node
                for node in nodes
                if node.record.phase is Phase.SCHEDULABLE
                and (node.request is None or is_requested_check(node.request))
                and not node.leaving
                and all(other == job for other in node.running_jobs)
                and not node_faults(node, policy, now)
            ),
            key=lambda node: node.name,
        )
    )


def room(
    job: JobView, nodes: Mapping[str, NodeView], policy: RemediationPolicy, now: datetime
) -> tuple[int, int]:
    """Return the number of ranks that a scheduler has room for: now, and after all repairs.

    Nodes that Holdfast does not manage count as they are.
    """
    at_hand = in_the_end = 0
    for name, ranks in (job.capacity or {}).items():
        node = nodes.get(name)
        is_free = node is None or usable((replace(node, running_jobs=()),), "", policy, now)
        if is_free and name not in job.blocked_nodes:
            at_hand += ranks
        if node is None or not _is_never_repaired(node, policy):
            in_the_end += ranks
    return at_hand, in_the_end


def _is_never_repaired(node: NodeView, policy: RemediationPolicy) -> bool:
    """Return whether no repair will bring a node back into service."""
    return node.record.phase is Phase.QUARANTINED and (
        bool(node.pause_reason)
        or (policy.node_recovery is RecoveryMode.NONE and node.request is None)
    )


def place(job: JobView, candidates: Mapping[str, NodeView]) -> tuple[str, ...] | None:
    """Return a node for each node rank, or None if there are too few.

    A healthy node keeps its rank, so that its caches stay useful.
    """
    assigned = [name if name in candidates else None for name in job.record.placement]
    assigned += [None] * (job.spec.nodes - len(assigned))
    spare = iter([name for name in candidates if name not in assigned])
    placement = [name if name is not None else next(spare, None) for name in assigned]
    chosen = tuple(name for name in placement if name is not None)
    return chosen if len(chosen) == job.spec.nodes else None
