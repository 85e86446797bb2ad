"""Nodes on which jobs keep dying while they claim to be healthy."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from holdfast.decisions.faults import node_faults
from holdfast.decisions.job_resume import ResumePolicy
from holdfast.decisions.policy import RecoveryMode, RemediationPolicy
from holdfast.kit.units import format_duration
from holdfast.model.health import Urgency
from holdfast.model.jobs import AttemptRecord, Failure, FailureKind
from holdfast.model.names import Reason
from holdfast.model.nodes import NodeView, Phase
from holdfast.model.requests import Request, Verb

_REQUESTED_BY: Final = "holdfast"
_NAMED: Final = 5
"""Attempts that the evidence names; the others are in the records of their jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspectNode:
    """A node that should be checked, and why."""

    node: str
    failures: int
    evidence: str
    request: Request
    """Its ``id`` is the same as long as no other failure is added."""


@dataclass(frozen=True, slots=True)
class _Death:
    job: str
    attempt: AttemptRecord
    failure: Failure


def suspect_nodes(
    attempts: Iterable[tuple[str, AttemptRecord]],
    nodes: Mapping[str, NodeView],
    policy: ResumePolicy,
    now: datetime,
) -> tuple[SuspectNode, ...]:
    """Nodes that should have a deep health check, those with the most failures first.

    What counts are failures of the application whose first failing rank was on the node since it
    was last given to jobs: those before had their answer. Failures of hardware have been answered
    by a repair. A job whose ranks failed on several nodes, at once or one after the other, accuses
    nobody, as the fault is its own. It takes different jobs, or one job of which the rank on the
    node failed alone each time, with other nodes beside: where all ranks fail at once, it is chance
    which one ends first. Its first failure counts although nobody watched the other ranks then, if
    a later one was alone. And it takes one death at least that did not begin on the node of rank 0:
    where all others wait for that one, as for the launcher of an MPI job, it is rank 0 that is
    seen to fail first.

    Args:
        attempts: of all jobs, each with the name of its job.
        nodes: the whole cluster by name.
        policy: says how many failures, within which time, and how many nodes may be away at once.
        now: the time.

    """
    needed = policy.job.suspect_failures
    if needed == 0 or policy.nodes.node_recovery is RecoveryMode.NONE:
        return ()
    found = []
    for name, deaths in _faithful_deaths(attempts, now, policy).items():
        node = nodes.get(name)
        if node is None or not _is_trusted(node, policy.nodes, now):
            continue
        since = [one for one in deaths if one.failure.at > node.record.phase_since]
        here = since if _are_different_jobs(since) else _alone(since)
        if len(here) >= needed and _stands_out(here):
            found.append(_suspect(name, here, policy, now))
    found.sort(key=lambda one: (-one.failures, one.node))
    away = sum(not _is_at_work(node) for node in nodes.values()) if found else 0
    return tuple(found[: max(0, policy.nodes.max_unavailable.of(len(nodes)) - away)])


def _faithful_deaths(
    attempts: Iterable[tuple[str, AttemptRecord]], now: datetime, policy: ResumePolicy
) -> Mapping[str, list[_Death]]:
    """By node, the failures of the jobs that died on this node and on no other."""
    since = now - policy.job.suspect_window
    of_job: defaultdict[str, list[_Death]] = defaultdict(list)
    for job, attempt in attempts:
        failure = attempt.failure
        if failure is not None and _accuses(failure) and failure.at > since:
            of_job[job].append(_Death(job, attempt, failure))
    by_node: defaultdict[str, list[_Death]] = defaultdict(list)
    for deaths in of_job.values():
        is_shared = any(one.failure.is_alone is False for one in deaths)
        if len({one.failure.node for one in deaths}) == 1 and not is_shared:
            by_node[deaths[0].failure.node] += deaths
    return by_node


def _accuses(failure: Failure) -> bool:
    """Whether a failure may be that of the node though the application's account bears it."""
    is_exit = failure.reason == Reason.RANK_EXITED
    return failure.kind is FailureKind.APPLICATION and is_exit and bool(failure.node)


def _stands_out(deaths: Sequence[_Death]) -> bool:
    """Whether not only rank 0 died here, which may be the first to fail wherever it is."""
    return not all(map(_may_be_rank_0, deaths))


def _are_different_jobs(deaths: Sequence[_Death]) -> bool:
    return len({one.job for one in deaths}) > 1


def _alone(deaths: Sequence[_Death]) -> list[_Death]:
    """Those with other nodes, on which the job was seen to run on; see ``watched_until``."""
    ordered = sorted(deaths, key=lambda one: (one.failure.at, one.attempt.attempt))
    counted = [
        one for one in ordered if _has_others(one) and (one.failure.is_alone or one is ordered[0])
    ]
    return counted if any(one.failure.is_alone for one in counted) else []


def _has_others(death: _Death) -> bool:
    return bool(set(death.attempt.placement) - {death.failure.node})


def _may_be_rank_0(death: _Death) -> bool:
    return _has_others(death) and death.attempt.placement[0] == death.failure.node


def _is_at_work(node: NodeView) -> bool:
    return node.record.phase is Phase.SCHEDULABLE and node.request is None


def _is_trusted(node: NodeView, policy: RemediationPolicy, now: datetime) -> bool:
    """Whether nothing speaks against a node yet, and nobody wants anything of it."""
    return _is_at_work(node) and not node.held and not node_faults(node, policy, now)


def _suspect(
    node: str, deaths: Sequence[_Death], policy: ResumePolicy, now: datetime
) -> SuspectNode:
    newest = sorted(deaths, key=lambda one: (one.failure.at, one.job), reverse=True)
    named = [f"{one.job} attempt {one.attempt.attempt}" for one in newest[:_NAMED]]
    more = len(newest) - len(named)
    window = format_duration(policy.job.suspect_window)
    evidence = (
        f"{len(newest)} failures of jobs within {window} began on it and on no other node: "
        f"{', '.join(named)}{f' and {more} before' if more else ''}"
    )
    return SuspectNode(
        node=node,
        failures=len(newest),
        evidence=evidence,
        request=Request(
            id=f"suspect-{node}-{newest[0].failure.at.isoformat()}",
            verb=Verb.DEEP_CHECK,
            requested_at=now,
            requested_by=_REQUESTED_BY,
            urgency=Urgency.DEFERRED,  # what runs on it, runs; a job that died here is down now
            reason=Reason.JOBS_KEEP_FAILING,
            why=evidence,
        ),
    )
