"""Exchange of the failed nodes of an attempt whose other ranks stay: pure."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime

from holdfast.decisions.job_failures import hardware_failure
from holdfast.decisions.placement import usable
from holdfast.decisions.policy import RemediationPolicy
from holdfast.decisions.restart_rungs import (
    Cause,
    Means,
    RestartBudget,
    RestartHistory,
    Rung,
    choose_rung,
)
from holdfast.model.actions import ExchangeNode
from holdfast.model.job_views import JobView
from holdfast.model.jobs import Failure, FailureKind, Placing
from holdfast.model.nodes import NodeView


def exchange(
    job: JobView,
    failure: Failure,
    nodes: Mapping[str, NodeView],
    policy: RemediationPolicy,
    now: datetime,
    exhausted: str,
) -> ExchangeNode | None:
    """Return the exchange of the failed node, by the restart ladder of all platforms.

    None if the whole attempt stops. Where Holdfast places the ranks, all failed nodes of the
    attempt need a spare each, and all other ranks have to run: their launchers wait for the new
    ones.

    Args:
        job: the job; its attempt starts or runs.
        failure: why the attempt cannot continue as it is.
        nodes: the whole cluster by name.
        policy: policy for nodes.
        now: current time.
        exhausted: why the job gets no further attempt; empty if it gets one.

    """
    if failure.kind is FailureKind.APPLICATION or not (job.spec.keeps_ranks and failure.node):
        return None
    failed = [name for name in job.record.placement if _has_failed(name, job, nodes, policy, now)]
    if failure.node not in failed:
        return None  # the node stays in service: its ranks have to restart, or a rank was evicted
    retries = job.record.hardware_retries if failure.kind is FailureKind.HARDWARE else 0
    most = max(job.spec.max_retries, 1)
    means = Means(missing=1)
    placement = tuple(name for name in job.record.placement if name != failure.node)
    if job.spec.placing is Placing.HOLDFAST:
        if not _others_run(job, failed):
            return None
        spares = _spares(job, nodes, policy, now)
        means = Means(missing=len(failed), spares=len(spares), can_exchange=False)
        spare = next(iter(spares), "")
        placement = tuple(spare if name == failure.node else name for name in job.record.placement)
    choice = choose_rung(
        Cause(text=exhausted or failure.reason, is_final=bool(exhausted)),
        means,
        RestartHistory(total=retries, exchanges=retries),
        RestartBudget(exchanges=most, total=most),
    )
    if choice.rung not in (Rung.SPARE, Rung.EXCHANGE):
        return None
    return ExchangeNode(job=job.spec.name, failure=failure, placement=placement)


def _has_failed(
    name: str,
    job: JobView,
    nodes: Mapping[str, NodeView],
    policy: RemediationPolicy,
    now: datetime,
) -> bool:
    """Return whether no rank can run on a node any more."""
    alone = replace(job.record, placement=(name,), started_at=None)
    return hardware_failure(replace(job, record=alone), nodes, policy, now) is not None


def _others_run(job: JobView, failed: Collection[str]) -> bool:
    """Return whether the ranks on all other nodes run, and there are any."""
    others = [rank for rank in job.ranks if rank.node not in failed]
    return bool(others) and all(rank.exit_code is None for rank in others)


def _spares(
    job: JobView, nodes: Mapping[str, NodeView], policy: RemediationPolicy, now: datetime
) -> list[str]:
    """Return the nodes that may take over ranks: those without ranks of the job."""
    taken = {*job.record.placement, *(rank.node for rank in job.leaving)}
    found = usable(nodes.values(), job.spec.name, policy, now)
    return [node.name for node in found if node.name not in taken]
