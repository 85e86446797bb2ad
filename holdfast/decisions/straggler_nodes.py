"""Nodes to check because a rank on them slows a job down."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from holdfast.decisions.job_resume import ResumePolicy
from holdfast.decisions.lifecycle import STRAGGLER_PERIOD, recent_straggler_checks
from holdfast.decisions.policy import RecoveryMode, StragglerAction
from holdfast.decisions.suspect_nodes import (
    SuspectNode,
    answered_at,
    deferred_check,
    is_trusted,
    within_budget,
)
from holdfast.model.job_views import JobView
from holdfast.model.jobs import JobPhase
from holdfast.model.names import DeepCheck, Reason
from holdfast.model.nodes import NodeView

JOB_CHECKS: Final = 2
"""Maximum number of nodes that are checked for the stragglers of one job within
``STRAGGLER_PERIOD``: the job itself may have written the lines that name them."""


def straggler_nodes(
    jobs: Iterable[JobView], nodes: Mapping[str, NodeView], policy: ResumePolicy, now: datetime
) -> tuple[SuspectNode, ...]:
    """Return the nodes that should get a deep health check because a rank on them is slow.

    A node is cordoned and checked once its jobs end: they are not interrupted. The line that names
    it may come from the job itself. So it has to be a node of the job's present attempt, it leads
    to a check and never to a repair, a node is checked at most once within ``STRAGGLER_PERIOD``,
    and a job leads to at most ``JOB_CHECKS`` checks in that time. A check of a node that has just
    ended, and a release by a person, answer the line as well.

    Args:
        jobs: jobs with their stragglers.
        nodes: the whole cluster by name.
        policy: what follows a straggler, and the limit of unavailable nodes.
        now: current time.

    """
    is_on = policy.job.straggler_action is StragglerAction.PAIR_TEST
    if not is_on or policy.nodes.node_recovery is RecoveryMode.NONE:
        return ()
    found: dict[str, SuspectNode] = {}
    for job in sorted(jobs, key=lambda one: one.spec.name):
        node = _straggling(job, nodes)
        if node is None or node.name in found:
            continue
        is_due = is_trusted(node, policy.nodes, now) and now - _last_at(node) >= STRAGGLER_PERIOD
        if is_due and _checks_of(job.spec.name, nodes.values(), now) < JOB_CHECKS:
            found[node.name] = _suspect(job, node, now)
    return within_budget([*found.values()], nodes.values(), policy.nodes)


def _straggling(job: JobView, nodes: Mapping[str, NodeView]) -> NodeView | None:
    """Return the node of the straggler of a running attempt, if it is one of that attempt."""
    record, slow = job.record, job.straggler
    if record.phase is not JobPhase.RUNNING or slow is None or slow.node not in record.placement:
        return None
    return nodes.get(slow.node)


def _last_at(node: NodeView) -> datetime:
    """Return the time of the last check of a node, of its begin or of its end, or release."""
    return max((answered_at(node), *(one.at for one in node.record.straggler_checks)))


def _checks_of(job: str, nodes: Iterable[NodeView], now: datetime) -> int:
    """Return the number of checks to which the stragglers of a job have led, and will."""
    return sum(
        (node.request is not None and node.request.job == job)
        + sum(one.job == job for one in recent_straggler_checks(node.record, now))
        for node in nodes
    )


def _suspect(job: JobView, node: NodeView, now: datetime) -> SuspectNode:
    name, slow = job.spec.name, job.straggler
    evidence = f"{name} attempt {job.record.attempt} reports: {slow.text if slow else ''}"
    return SuspectNode(
        node=node.name,
        failures=1,
        evidence=evidence,
        request=replace(
            deferred_check(
                f"straggler-{node.name}-{_last_at(node).isoformat()}",
                Reason.STRAGGLER_FOUND,
                evidence,
                now,
            ),
            checks=(DeepCheck.STRESS, DeepCheck.CONNECTIVITY),  # with tests between nodes
            job=name,
        ),
    )
