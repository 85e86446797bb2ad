"""Transitions of a job's record."""

from dataclasses import replace
from datetime import datetime

from holdfast.decisions.job_resume import failures_at_step
from holdfast.model.actions import (
    ConfirmStart,
    ExchangeNode,
    Finish,
    JobAction,
    KillAttempt,
    Relaunch,
    Retry,
    StartAttempt,
    StopAttempt,
)
from holdfast.model.job_views import JobView
from holdfast.model.jobs import (
    ATTEMPTS_LIMIT,
    AttemptRecord,
    ExchangedNode,
    Failure,
    FailureKind,
    JobPhase,
    JobRecord,
)


def after_job(job: JobView, action: JobAction, now: datetime) -> JobRecord:
    """Return the record of ``job`` after ``action`` is taken at ``now``.

    For ``StartAttempt`` this is the record to write *before* the ranks are launched; ``launched``
    gives the one to write afterwards.
    """
    record = job.record
    match action:
        case StartAttempt():
            return replace(
                record,
                phase=JobPhase.STARTING,
                phase_since=now,
                attempt=record.attempt + 1,
                placement=action.placement,
                start_after=None,
                started_at=now,
                running_at=None,
                reason="",
                kills=0,
                exchanged=(),
            )
        case Relaunch():
            return record
        case ConfirmStart():
            return launched(record, now)
        case StopAttempt():
            failure = action.failure
            stopping = replace(record, phase=JobPhase.STOPPING, phase_since=now, kills=0)
            reason = failure.reason if failure else "cancelled by request"
            return replace(stopping, failure=failure, reason=reason)
        case KillAttempt():
            return replace(record, phase_since=now, kills=record.kills + 1)
        case Retry():
            return _retried(job, action, now)
        case ExchangeNode():
            return _exchanged(job, action, now)
        case Finish():
            over = (
                _with_attempt(job, action.failure, now)
                if record.phase is not JobPhase.WAITING
                else record
            )
            return replace(over, phase=action.outcome, phase_since=now, reason=action.reason)


def launched(record: JobRecord, now: datetime) -> JobRecord:
    """Return the record after the ranks of the attempt were launched."""
    return replace(
        record,
        phase=JobPhase.RUNNING,
        phase_since=now,
        started_at=record.started_at or now,
        running_at=now,
    )


def displaced(
    record: JobRecord, failure: Failure, placement: tuple[str, ...], started_at: datetime | None
) -> JobRecord:
    """Return the record of a job whose attempt ended before Holdfast watched the job.

    Args:
        record: record before that attempt.
        failure: why the attempt was ended.
        placement: nodes of the attempt.
        started_at: start of the attempt; None if unknown.

    """
    attempt = record.attempt + 1
    over = AttemptRecord(
        attempt=attempt,
        placement=placement,
        started_at=started_at or failure.at,
        stopped_at=failure.at,
        failure=failure,
    )
    return replace(
        record,
        phase=JobPhase.WAITING,
        phase_since=failure.at,
        attempt=attempt,
        failure=failure,
        hardware_retries=record.hardware_retries + (failure.kind is FailureKind.HARDWARE),
        attempts=(*record.attempts, over)[-ATTEMPTS_LIMIT:],
        reason=failure.reason,
    )


def begun_by_others(record: JobRecord, began: datetime) -> JobRecord:
    """Return the record of an attempt that Holdfast did not start.

    If Holdfast was stopping the attempt before, that one is over, and the new one is its retry.

    Args:
        record: record of the attempt before.
        began: start of the attempt.

    """
    failure = record.failure
    if record.phase is JobPhase.STOPPING and failure is not None:
        best = _best(record.best_step, failure.step)
        record = replace(_counted(_over(record, failure, began), failure), best_step=best)
    return replace(
        record,
        phase=JobPhase.STARTING,
        phase_since=began,
        attempt=record.attempt + 1,
        placement=(),
        started_at=began,
        start_after=None,
        kills=0,
        reason="",
    )


def _counted(record: JobRecord, failure: Failure) -> JobRecord:
    """Return the record with a retry for a failure."""
    return replace(
        record,
        hardware_retries=record.hardware_retries + (failure.kind is FailureKind.HARDWARE),
        app_retries=record.app_retries + (failure.kind is FailureKind.APPLICATION),
    )


def _retried(job: JobView, action: Retry, now: datetime) -> JobRecord:
    failure = action.failure
    record = _counted(_with_attempt(job, failure, now), failure)
    return replace(
        record,
        phase=JobPhase.WAITING,
        phase_since=now,
        failure=failure,
        same_step_failures=failures_at_step(job, failure),
        best_step=_best(record.best_step, failure.step),
        start_after=action.start_after,
        reason=failure.reason,
        kills=0,
    )


def _exchanged(job: JobView, action: ExchangeNode, now: datetime) -> JobRecord:
    """Return the record of an attempt that begins while all ranks but that of a node stay."""
    failure = action.failure
    retry = Retry(job=job.spec.name, failure=failure, start_after=None)
    others = tuple(one for one in job.record.exchanged if one.node != failure.node)
    return replace(
        _retried(job, retry, now),
        phase=JobPhase.STARTING,
        attempt=job.record.attempt + 1,
        placement=action.placement,
        started_at=now,
        running_at=None,
        exchanged=(*others, ExchangedNode(node=failure.node, at=now))[-ATTEMPTS_LIMIT:],
    )


def _with_attempt(job: JobView, failure: Failure | None, now: datetime) -> JobRecord:
    return _over(job.record, failure, now, (job.first_step, job.step))


def _over(
    record: JobRecord,
    failure: Failure | None,
    now: datetime,
    steps: tuple[int | None, int | None] = (None, None),
) -> JobRecord:
    """Return the record with its current attempt added to the ended attempts.

    Args:
        record: record of the job.
        failure: why the attempt ended; None if it did not fail.
        now: end of the attempt.
        steps: its first and last step; None where unknown.

    """
    over = AttemptRecord(
        attempt=record.attempt,
        placement=record.placement,
        started_at=record.started_at or record.phase_since,
        stopped_at=now,
        running_at=record.running_at,
        first_step=steps[0],
        last_step=steps[1],
        failure=failure,
    )
    return replace(
        record,
        failure=failure or record.failure,
        attempts=(*record.attempts, over)[-ATTEMPTS_LIMIT:],
    )


def _best(one: int | None, other: int | None) -> int | None:
    return max((step for step in (one, other) if step is not None), default=None)
