"""Events of the actions on jobs."""

from dataclasses import replace
from datetime import datetime

from holdfast.model.actions import ExchangeNode, Finish, KillAttempt, Retry
from holdfast.model.events import AttemptKilled, AttemptStarted, JobFinished, JobRetried
from holdfast.model.job_views import JobView
from holdfast.model.jobs import JobRecord, JobSpec


def started_event(job: str, record: JobRecord) -> AttemptStarted:
    """Return the start event; with durations of the restart if the previous attempt had failed."""
    event = AttemptStarted(job=job, attempt=record.attempt, nodes=record.placement)
    over, started_at = record.attempts[-1] if record.attempts else None, record.started_at
    if over is None or over.failure is None or started_at is None:
        return event
    return replace(
        event,
        stopped_in=over.stopped_at - over.failure.began_at,
        waited=started_at - over.stopped_at,
        started_in=record.phase_since - started_at,
    )


def killed_event(action: KillAttempt, job: JobView, now: datetime) -> AttemptKilled:
    """Return the event of a SIGKILL, with the nodes whose ranks it ends."""
    alive = [rank for rank in (*job.ranks, *job.leaving) if rank.exit_code is None]
    is_fenced = any(rank.is_fenced for rank in alive)
    return AttemptKilled(
        job=job.spec.name,
        attempt=job.record.attempt,
        nodes=action.nodes or tuple(dict.fromkeys(rank.node for rank in alive)),
        after=None if is_fenced else now - job.record.phase_since,
    )


def verdict_event(
    action: Retry | ExchangeNode | Finish, spec: JobSpec, record: JobRecord
) -> JobRetried | JobFinished:
    """Return the event of a decision about an attempt that has failed."""
    if isinstance(action, Finish):
        return JobFinished(job=action.job, outcome=action.outcome, reason=action.reason)
    return JobRetried(
        job=action.job,
        kind=action.failure.kind,
        reason=action.failure.reason,
        cause=action.failure.cause,
        node=action.failure.node,
        hardware_retries=record.hardware_retries,
        app_retries=record.app_retries,
        max_retries=spec.max_retries,
        max_app_retries=spec.max_app_retries,
        exchanged=action.failure.node if isinstance(action, ExchangeNode) else "",
    )
