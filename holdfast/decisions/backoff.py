"""How long a job that keeps failing by itself waits, as the kubelet's CrashLoopBackOff does."""

from datetime import datetime, timedelta

from holdfast.decisions.policy import JobPolicy
from holdfast.model.jobs import Failure, FailureKind, JobRecord


def app_backoff(record: JobRecord, failure: Failure, policy: JobPolicy) -> timedelta:
    """The pause before the next attempt: none after the first crash, then doubling."""
    crashes = crashes_in_a_row(record, failure, policy)
    if crashes <= 1:
        return timedelta(0)
    doublings = min(crashes - 2, 30)  # more could overflow a timedelta
    factor: int = 2**doublings
    return min(policy.app_backoff_max, policy.app_backoff * factor)


def crashes_in_a_row(record: JobRecord, failure: Failure, policy: JobPolicy) -> int:
    """Failures of the application, this one included, with no long run before the first of them.

    Args:
        record: of the job, with the attempt that has just failed as its present one.
        failure: that of the attempt.
        policy: says how long a run has to be.

    """
    began = record.running_at or record.started_at
    runs: list[tuple[FailureKind | None, timedelta]] = [
        (failure.kind, _ran(began, failure.began_at))
    ]
    for over in reversed(record.attempts):
        kind = over.failure.kind if over.failure is not None else None
        ended = over.failure.began_at if over.failure is not None else over.stopped_at
        runs.append((kind, _ran(over.running_at or over.started_at, ended)))
    crashes = 0
    for kind, ran in runs:
        crashes += kind is FailureKind.APPLICATION
        if ran >= policy.app_backoff_reset:
            break
    return crashes


def _ran(began: datetime | None, ended: datetime) -> timedelta:
    return ended - began if began is not None else timedelta(0)
