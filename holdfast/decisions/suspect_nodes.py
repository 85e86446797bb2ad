"""Nodes to check although no fault of them is certain."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from holdfast.decisions.faults import node_faults
from holdfast.decisions.job_resume import ResumePolicy
from holdfast.decisions.policy import RecoveryMode, RemediationPolicy
from holdfast.kit.units import format_duration
from holdfast.model.health import Fault, Urgency
from holdfast.model.jobs import AttemptRecord, Failure, FailureKind
from holdfast.model.names import Cause, Reason
from holdfast.model.nodes import ClusterView, NodeView, Phase
from holdfast.model.requests import Request, Verb

_REQUESTED_BY: Final = "holdfast"
"""Author of the requests of suspects."""

_NAMED: Final = 5
"""Maximum number of attempts that the evidence names; the records of the jobs have the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspectNode:
    """Node that should be checked, and why."""

    node: str
    failures: int
    """Failures of jobs, faults that are not corroborated, or slow ranks."""

    evidence: str
    request: Request
    """Request for the check. Its ``id`` stays the same until another failure is added."""


CHECK_INTERVAL: Final = timedelta(days=1)
"""Shortest time between two checks of a node for lines that may be forged: whoever forges them
must not keep the node out of service."""


@dataclass(frozen=True, slots=True)
class _RankFailure:
    job: str
    attempt: AttemptRecord
    failure: Failure


def suspect_nodes(
    attempts: Iterable[tuple[str, AttemptRecord]],
    nodes: Mapping[str, NodeView],
    policy: ResumePolicy,
    now: datetime,
) -> tuple[SuspectNode, ...]:
    """Return the nodes that should get a deep health check, those with most failures first.

    Failures of the application count whose first failing rank was on the node, since the node was
    last released to jobs: earlier failures led to a check already, and failures of hardware to a
    repair. A full disk does not count. A job whose ranks failed on several nodes, at once or one
    after the other, does not count against any node: the cause is the job. A node is suspect if
    different jobs failed on it, or one job whose rank on the node failed alone each time while
    other nodes took part: where all ranks fail at once, it is chance which one ends first. The
    first failure of that job counts although the other ranks were not watched then, if a later one
    was alone. At least one failure must not have begun on the node of rank 0: where all other ranks
    wait for rank 0, as for the launcher of an MPI job, rank 0 always appears to fail first.

    Args:
        attempts: attempts of all jobs, each with the name of its job.
        nodes: the whole cluster by name.
        policy: number of failures, time window, and limit of unavailable nodes.
        now: current time.

    """
    needed = policy.job.suspect_failures
    if needed == 0 or policy.nodes.node_recovery is RecoveryMode.NONE:
        return ()
    found = []
    for name, failures in _failures_by_node(attempts, now, policy).items():
        node = nodes.get(name)
        if node is None or not is_trusted(node, policy.nodes, now):
            continue
        since = [one for one in failures if one.failure.at > node.record.phase_since]
        here = since if len({one.job for one in since}) > 1 else _alone(since)
        if len(here) >= needed and _stands_out(here):
            found.append(_suspect(name, here, policy, now))
    found.sort(key=lambda one: (-one.failures, one.node))
    return within_budget(found, nodes.values(), policy.nodes)


def uncorroborated_nodes(
    cluster: ClusterView, policy: RemediationPolicy, now: datetime
) -> tuple[SuspectNode, ...]:
    """Return the nodes that should get a deep health check because of log lines that may be forged.

    A check that ended after the line answers it. The checks wait for the jobs of their nodes and
    use the budget of repairs.
    """
    if policy.node_recovery is RecoveryMode.NONE or cluster.breaker.tripped_at is not None:
        return ()
    found = [
        _uncorroborated(node, now)
        for node in sorted(cluster.nodes, key=lambda node: node.name)
        if node.suspects
        and is_trusted(node, policy, now)
        and answered_at(node) < max(_evidence_at(one) for one in node.suspects)
        and not (node.record.checks and now - node.record.checks[-1].ended_at < CHECK_INTERVAL)
    ]
    return within_budget(found, cluster.nodes, policy)


def within_budget(
    found: Sequence[SuspectNode], nodes: Collection[NodeView], policy: RemediationPolicy
) -> tuple[SuspectNode, ...]:
    """Return the first suspects of ``found`` that the budget of unavailable nodes allows."""
    unavailable = sum(not _is_at_work(node) for node in nodes) if found else 0
    return tuple(found[: max(0, policy.max_unavailable.of(len(nodes)) - unavailable)])


def deferred_check(id_: str, reason: Reason, why: str, now: datetime) -> Request:
    """Return the request of a deep health check that starts once no job is on the node."""
    return Request(
        id=id_,
        verb=Verb.DEEP_CHECK,
        requested_at=now,
        requested_by=_REQUESTED_BY,
        urgency=Urgency.DEFERRED,
        reason=reason,
        why=why,
    )


def answered_at(node: NodeView) -> datetime:
    """Return the time of the last check or release, which answers earlier evidence."""
    checks, cleared_at = node.record.checks, node.record.cleared_at
    answered = [*(one.ended_at for one in checks), *([cleared_at] if cleared_at else [])]
    return max(answered, default=datetime.min.replace(tzinfo=UTC))


def _evidence_at(suspect: Fault) -> datetime:
    return suspect.seen_at or suspect.since


def _uncorroborated(node: NodeView, now: datetime) -> SuspectNode:
    newest = max(node.suspects, key=_evidence_at)
    source = "a log line that may be forged" if newest.seen_at else "a state that jobs can cause"
    evidence = f"{source} reports {newest.reason}, and no other reading does: {newest.message}"
    return SuspectNode(
        node=node.name,
        failures=len(node.suspects),
        evidence=evidence,
        request=deferred_check(
            f"uncorroborated-{node.name}-{answered_at(node).isoformat()}",
            Reason.FAULT_UNCORROBORATED,
            evidence,
            now,
        ),
    )


def _failures_by_node(
    attempts: Iterable[tuple[str, AttemptRecord]], now: datetime, policy: ResumePolicy
) -> Mapping[str, list[_RankFailure]]:
    """Return by node the failures of the jobs that failed on this node and on no other."""
    since = now - policy.job.suspect_window
    of_job: defaultdict[str, list[_RankFailure]] = defaultdict(list)
    for job, attempt in attempts:
        failure = attempt.failure
        if failure is not None and _may_be_node(failure) and failure.at > since:
            of_job[job].append(_RankFailure(job, attempt, failure))
    by_node: defaultdict[str, list[_RankFailure]] = defaultdict(list)
    for failures in of_job.values():
        is_shared = any(one.failure.is_alone is False for one in failures)
        if len({one.failure.node for one in failures}) == 1 and not is_shared:
            by_node[failures[0].failure.node] += failures
    return by_node


def _may_be_node(failure: Failure) -> bool:
    """Return whether an application failure may be caused by its node.

    Not a full disk: it is most often shared, and no check of a node frees space.
    """
    is_exit = failure.reason == Reason.RANK_EXITED and failure.cause != Cause.DISK_FULL
    return failure.kind is FailureKind.APPLICATION and is_exit and bool(failure.node)


def _stands_out(failures: Sequence[_RankFailure]) -> bool:
    """Return whether not only rank 0 failed here, which may fail first on any node."""
    return not all(map(_may_be_rank_0, failures))


def _alone(failures: Sequence[_RankFailure]) -> list[_RankFailure]:
    """Return the failures during which the other nodes' ranks ran on; see ``watched_until``."""
    ordered = sorted(failures, key=lambda one: (one.failure.at, one.attempt.attempt))
    counted = [
        one for one in ordered if _has_others(one) and (one.failure.is_alone or one is ordered[0])
    ]
    return counted if any(one.failure.is_alone for one in counted) else []


def _has_others(failed: _RankFailure) -> bool:
    return bool(set(failed.attempt.placement) - {failed.failure.node})


def _may_be_rank_0(failed: _RankFailure) -> bool:
    return _has_others(failed) and failed.attempt.placement[0] == failed.failure.node


def _is_at_work(node: NodeView) -> bool:
    return node.record.phase is Phase.SCHEDULABLE and node.request is None


def is_trusted(node: NodeView, policy: RemediationPolicy, now: datetime) -> bool:
    """Return whether a node has no fault, no request and no hold."""
    return _is_at_work(node) and not node.pause_reason and not node_faults(node, policy, now)


def _suspect(
    node: str, failures: Sequence[_RankFailure], policy: ResumePolicy, now: datetime
) -> SuspectNode:
    newest = sorted(failures, key=lambda one: (one.failure.at, one.job), reverse=True)
    named = [f"{one.job} attempt {one.attempt.attempt}" for one in newest[:_NAMED]]
    more = len(newest) - len(named)
    window = format_duration(policy.job.suspect_window)
    evidence = (
        f"{len(newest)} job failures within {window} began on this node and on no other: "
        f"{', '.join(named)}{f' and {more} earlier' if more else ''}"
    )
    return SuspectNode(
        node=node,
        failures=len(newest),
        evidence=evidence,
        request=deferred_check(
            f"suspect-{node}-{newest[0].failure.at.isoformat()}",
            Reason.JOBS_KEEP_FAILING,
            evidence,
            now,
        ),
    )
