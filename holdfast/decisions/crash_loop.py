"""Backoff of a job whose application keeps crashing, as the kubelet's CrashLoopBackOff."""

from datetime import datetime, timedelta

from holdfast.decisions.policy import JobPolicy
from holdfast.kit.backoff import Backoff
from holdfast.model.jobs import Failure, FailureKind, JobRecord


def app_backoff(record: JobRecord, failure: Failure, policy: JobPolicy) -> timedelta:
    """Delay before the next attempt: none after the first crash, then doubling."""
    backoff = Backoff(policy.app_backoff, policy.app_backoff_max)
    return backoff.delay(crashes_in_a_row(record, failure, policy) - 1)


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
