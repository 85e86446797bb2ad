"""Whether a restart can help after the root cause of a failure. Pure."""

from datetime import datetime, timedelta

from holdfast.decisions.permanent_causes import Circumstances, why_futile
from holdfast.decisions.policy import JobPolicy
from holdfast.model.job_views import JobView
from holdfast.model.jobs import Failure, FailureKind


def futile_restart(job: JobView, failure: Failure, policy: JobPolicy) -> str:
    """Return why a restart would fail in the same way; empty if it may succeed.

    Args:
        job: the job; its present attempt has failed.
        failure: failure of the present attempt.
        policy: job policy.

    """
    if not policy.stop_on_permanent_cause or failure.kind is not FailureKind.APPLICATION:
        return ""
    seen = Circumstances(
        is_at_start=_is_at_start(job, failure, policy),
        is_shared=job.spec.nodes == 1 or failure.is_alone is False,
        is_repeated=_is_repeated(job, failure),
        is_at_same_step=_is_at_same_step(job, failure),
    )
    return why_futile(failure.cause, seen)


def _is_at_start(job: JobView, failure: Failure, policy: JobPolicy) -> bool:
    """Return whether an attempt failed before it made any progress."""
    if job.step is not None and job.step != job.first_step:
        return False
    began: datetime | None = job.record.running_at or job.record.started_at
    ran = failure.began_at - began if began is not None else timedelta(0)
    return ran < policy.app_backoff_reset


def _is_repeated(job: JobView, failure: Failure) -> bool:
    """Return whether the attempt before failed for the same cause."""
    before = _failure_before(job)
    return before is not None and before.cause == failure.cause


def _is_at_same_step(job: JobView, failure: Failure) -> bool:
    before = _failure_before(job)
    return (
        before is not None
        and failure.step is not None
        and (before.cause, before.step) == (failure.cause, failure.step)
    )


def _failure_before(job: JobView) -> Failure | None:
    attempts = job.record.attempts
    return attempts[-1].failure if attempts else None
