"""Whether a restart can help after the root cause of a failure. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from holdfast.decisions.failure_signatures import cause_of
from holdfast.decisions.policy import JobPolicy
from holdfast.model.jobs import Failure, FailureKind, JobView
from holdfast.model.names import Cause


class Recurrence(StrEnum):
    """When a failure is certain to recur after a restart."""

    AT_START = "at-start"
    """If it happened before the first step: the same program starts in the same way again."""

    ALWAYS = "always"
    SAME_STEP = "same-step"
    """If it happens at the same step twice in a row."""


@dataclass(frozen=True, slots=True)
class _Futile:
    recurrence: Recurrence
    remedy: str


_FUTILE: Final[Mapping[Cause, _Futile]] = MappingProxyType(
    {
        Cause.IMPORT_FAILED: _Futile(
            Recurrence.AT_START, "install the module in the environment of the job"
        ),
        Cause.SYNTAX_INVALID: _Futile(Recurrence.AT_START, "fix the code"),
        Cause.ARGUMENTS_INVALID: _Futile(Recurrence.AT_START, "fix the arguments of the job"),
        Cause.COMMAND_MISSING: _Futile(Recurrence.AT_START, "fix the command of the job"),
        Cause.FILE_MISSING: _Futile(Recurrence.AT_START, "check the path and the mounts"),
        Cause.DISK_FULL: _Futile(Recurrence.ALWAYS, "free space, or raise the quota"),
        Cause.CUDA_OUT_OF_MEMORY: _Futile(
            Recurrence.SAME_STEP, "reduce the memory that this step needs, such as the batch size"
        ),
    }
)
"""Causes that a restart does not remove."""


def may_be_futile(text: str, exit_code: int | None) -> bool:
    """Return whether a restart after such a failure may be useless."""
    return cause_of(text, exit_code) in _FUTILE


def futile_restart(job: JobView, failure: Failure, policy: JobPolicy) -> str:
    """Return why a restart would fail in the same way; empty if it may succeed.

    If a job has several nodes, more than one must fail by itself: a file may be missing, or a disk
    be full, on a single node. Where only one rank saves, it is the only one that a full disk of all
    nodes ends: the job fails if that happens in two attempts in a row.

    Args:
        job: the job; its present attempt has failed.
        failure: failure of the present attempt.
        policy: job policy.

    """
    if not policy.stop_on_permanent_cause or failure.kind is not FailureKind.APPLICATION:
        return ""
    row = next((row for cause, row in _FUTILE.items() if cause == failure.cause), None)
    if row is None or not _recurs(row.recurrence, job, failure, policy):
        return ""
    return f"a restart would fail in the same way ({failure.cause}): {row.remedy}, then resubmit"


def _recurs(recurrence: Recurrence, job: JobView, failure: Failure, policy: JobPolicy) -> bool:
    if recurrence is Recurrence.SAME_STEP:
        return _is_at_same_step(job, failure)
    if job.spec.nodes > 1 and failure.is_alone is not False:
        return recurrence is Recurrence.ALWAYS and _is_repeated(job, failure)
    return recurrence is Recurrence.ALWAYS or _is_at_start(job, failure, policy)


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
