"""Delay before the next attempt of a job whose application keeps failing.

It follows the kubelet's CrashLoopBackOff.
"""

from datetime import datetime, timedelta

from holdfast.decisions.policy import JobPolicy
from holdfast.kit.backoff import Backoff
from holdfast.model.jobs import Failure, FailureKind, JobRecord


def app_backoff(record: JobRecord, failure: Failure, policy: JobPolicy) -> timedelta:
    """Return the delay before the next attempt: none after the first crash, then doubling."""
    backoff = Backoff(policy.app_backoff, policy.app_backoff_max)
    return backoff.delay(crashes_in_a_row(record, failure, policy) - 1)


def crashes_in_a_row(record: JobRecord, failure: Failure, policy: JobPolicy) -> int:
    """Return the number of consecutive application failures, the present one included.

    A run of at least ``policy.app_backoff_reset`` ends the sequence.

    Args:
        record: record of the job; its present attempt is the one that failed.
        failure: failure of the present attempt.
        policy: job policy.

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
