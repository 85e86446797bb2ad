"""Failures of ranks: which rank failed first, whether it failed alone, and why."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from holdfast.decisions.failure_signatures import OWN_CAUSES, PEER_CAUSES, cause_of, is_peer_failure
from holdfast.decisions.job_failures import application, hardware
from holdfast.decisions.permanent_causes import may_be_futile
from holdfast.decisions.policy import JobPolicy
from holdfast.model.job_views import JobView, RankView
from holdfast.model.jobs import Failure, FailureKind, LossAction
from holdfast.model.names import Reason


def watched_until(job: JobView, policy: JobPolicy, now: datetime) -> datetime | None:
    """Return until when other ranks are watched after one has failed; None if none are.

    Ranks that fail by themselves within ``failure_margin`` show that the node is not the cause.
    That matters once the job has failed before: a first failure blames no node, and restarts the
    job at once, unless a restart may be useless. After a rank that only noticed the loss of another
    one, the failure of that one is awaited. A rank that was lost or evicted needs no such evidence.
    """
    failed = _failed(job)
    if not failed or any(rank.is_lost or rank.is_evicted for rank in failed):
        return None
    first = _first(failed, now)
    cause = cause_of(first.reason, first.exit_code)
    is_futile = policy.stop_on_permanent_cause and may_be_futile(cause)
    if not (is_futile or is_peer_failure(first.reason) or _counts_against_node(job, policy)):
        return None
    if _has_ended(job):
        return None
    ends = [rank.ended_at for rank in failed if rank.ended_at is not None]
    if not ends or min(ends) > now:
        return None  # that node's clock is wrong
    until = min(ends) + policy.failure_margin
    return until if now < until else None


def application_failure(job: JobView, policy: JobPolicy, now: datetime) -> Failure | None:
    """Return why an attempt has failed by its ranks, or hangs; None if it continues."""
    failed = _failed(job)
    if failed:
        first = _first(failed, now)
        if first.is_lost:
            return hardware(job, now, Reason.NODE_LOST, first.node, _exit_text(first))
        if first.is_evicted:
            evicted = hardware(job, now, Reason.RANK_EVICTED, first.node, _exit_text(first))
            return replace(evicted, kind=FailureKind.REQUESTED)
        fault = job.loss_fault
        if fault is not None and fault.reason == Reason.LOSS_NOT_FINITE:
            own = _loss_failure(job, now)  # many jobs check their loss, and end themselves
            if own is not None:
                return replace(own, evidence=f"{own.evidence}; {_exit_text(first)}")
        if job.abort is not None:
            evidence = f"{job.abort.text}; {_exit_text(first)}"
            node = job.abort.node or first.node
            hung = application(job, now, Reason.JOB_HUNG, node, evidence)
            return replace(hung, cause=cause_of(first.reason, first.exit_code) or "")
        failure = application(job, now, Reason.RANK_EXITED, first.node, _exit_text(first))
        return replace(
            failure,
            cause=cause_of(first.reason, first.exit_code) or "",
            is_alone=_is_alone(first, job, policy.failure_margin, now),
        )
    if job.hung_since is not None:
        since = f"no progress since {job.hung_since.isoformat(timespec='seconds')}"
        return application(job, now, job.hung_reason, "", job.hung_evidence or since)
    return _loss_failure(job, now)


def after_stop(failure: Failure, job: JobView) -> Failure:
    """Return the cause of a failure once all ranks have ended.

    A rank that loses its peer ends at once. The peer may need longer than ``failure_margin``: it
    frees GPU memory, or torchrun waits for its other workers. Then the stop of the attempt ends it,
    and only its log shows that it failed first.
    """
    if failure.reason != Reason.RANK_EXITED or failure.cause not in PEER_CAUSES:
        return failure
    own = [one for one in _failed(job) if not one.is_lost and cause_of(one.reason) in OWN_CAUSES]
    if not own:
        return failure
    first = _first(own, failure.at)
    return replace(
        failure,
        node=first.node,
        evidence=f"node rank {first.rank} failed first, but ended later ({first.reason}); "
        f"{failure.evidence}",
        cause=cause_of(first.reason) or "",
        is_alone=len(own) == 1,
    )


def _loss_failure(job: JobView, now: datetime) -> Failure | None:
    """Return why an attempt is stopped for its loss; None if it runs on."""
    fault = job.loss_fault
    if fault is None or fault.action is LossAction.ASK:
        return None
    failure = application(job, now, fault.reason, "", fault.evidence)
    return replace(failure, step=fault.step, loss_action=fault.action)


def _failed(job: JobView) -> list[RankView]:
    return [rank for rank in job.ranks if rank.exit_code not in (None, 0)]


def _first(failed: Sequence[RankView], now: datetime) -> RankView:
    """Return the rank whose failure explains the others."""
    return min(
        failed,
        key=lambda rank: (
            not rank.is_lost,
            is_peer_failure(rank.reason),
            rank.ended_at or now,
            rank.rank,
        ),
    )


def _counts_against_node(job: JobView, policy: JobPolicy) -> bool:
    """Return whether another failure of the job counts against a node."""
    failures = [one.failure for one in job.record.attempts if one.failure is not None]
    has_failed = any(one.kind is FailureKind.APPLICATION for one in failures)
    return has_failed and policy.suspect_failures > 0


def _is_alone(first: RankView, job: JobView, margin: timedelta, now: datetime) -> bool | None:
    """Return whether all other ranks ran on for ``margin``, succeeded, or failed by the first.

    None while that is not known.
    """
    if margin <= timedelta(0) or first.ended_at is None or len(job.ranks) != job.spec.nodes:
        return None
    if is_peer_failure(first.reason):
        return False
    others = [rank for rank in _failed(job) if rank is not first]
    if not all(
        is_peer_failure(rank.reason)
        or (rank.ended_at is not None and rank.ended_at - first.ended_at >= margin)
        for rank in others
    ):
        return False
    return True if now - first.ended_at >= margin or _has_ended(job) else None


def _has_ended(job: JobView) -> bool:
    return all(rank.exit_code is not None or rank.is_fenced for rank in job.ranks)


def _exit_text(rank: RankView) -> str:
    code = rank.exit_code or 0
    cause = f" ({rank.reason})" if rank.reason else ""
    if rank.is_lost:
        return f"node rank {rank.rank} was lost with its node{cause}"
    if rank.is_evicted:
        return f"node rank {rank.rank} was evicted from its node{cause}"
    if code < 0:
        return f"node rank {rank.rank} was killed by signal {-code}{cause}"
    return f"node rank {rank.rank} exited with code {code}{cause}"
