"""Conversion of job records to annotations and patches of the job: pure."""

from dataclasses import replace
from datetime import datetime
from typing import Final

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.client.values import compact_json
from holdfast.adapters.kubernetes.jobs.job_kind import JobKind
from holdfast.adapters.kubernetes.jobs.objects import JobState
from holdfast.adapters.kubernetes.jobs.requests import JobRequests
from holdfast.decisions.loss_faults import skipped_steps
from holdfast.decisions.loss_settings import bad_loss
from holdfast.kit.units import format_duration
from holdfast.model.jobs import (
    ATTEMPT_VARIABLE,
    BAD_LOSS_VARIABLE,
    RESTART_REASON_VARIABLE,
    SKIP_STEPS_VARIABLE,
    AttemptRecord,
    JobPhase,
    JobRecord,
)
from holdfast.model.names import (
    ATTEMPT,
    BAD_LOSS,
    JOB_RECORD,
    JOB_STATUS,
    RECORD_OF,
    RESTART_REASON,
    SKIP_STEPS,
)

RECORD_LIMIT: Final = 64 * 1024
"""Maximum size of a record in bytes; all annotations of an object may have 256 KiB together."""

FAILED: Final = "HoldfastRestartsSpent"
"""Reason of the condition of a job that has failed permanently."""

_SUSPENDED: Final = {
    JobPhase.STOPPING: True,
    JobPhase.WAITING: True,
    JobPhase.STARTING: False,
}
"""Whether a phase requires suspension; phases that are not listed leave it unchanged."""

_REPORTED_ATTEMPTS: Final = 5

_OF_LOSSES: Final = {SKIP_STEPS: SKIP_STEPS_VARIABLE, BAD_LOSS: BAD_LOSS_VARIABLE}
"""Annotations of the pods of a job that was restarted for its loss, and their variables."""


def record_patch(
    job: Json, state: JobState, kind: JobKind, record: JobRecord, requests: JobRequests
) -> Json:
    """Return the merge patch that writes a record and applies its phase atomically.

    Args:
        job: the whole object.
        state: parsed state of the job.
        kind: kind of the job.
        record: record to write.
        requests: parsed annotations of the job.

    """
    annotations = {
        JOB_RECORD: bounded(record),
        RECORD_OF: state.uid,
        JOB_STATUS: summary(record, requests),
    }
    patch: Json = {
        "metadata": {"resourceVersion": state.resource_version, "annotations": annotations}
    }
    is_suspended = _SUSPENDED.get(record.phase)
    if is_suspended is not None and state.queue is None:
        patch |= kind.suspension(is_suspended=is_suspended)
    if is_restart(record) and kind.body is None:
        _merge(
            patch,
            kind.attempt_patch(job, *attempt_metadata(record, is_queued=state.queue is not None)),
        )
    return patch


def is_restart(record: JobRecord) -> bool:
    """Whether an attempt after the first one begins with new pods for all ranks."""
    is_start = record.phase is JobPhase.STARTING and record.attempt > 1
    return is_start and not record.exchanged


def release_patch(state: JobState, kind: JobKind, *, resumes: bool) -> Json:
    """Return the merge patch that removes a job's record and, with ``resumes``, the suspension."""
    patch: Json = {
        "metadata": {
            "resourceVersion": state.resource_version,
            "annotations": {JOB_RECORD: None, RECORD_OF: None, JOB_STATUS: None},
        }
    }
    return patch | kind.suspension(is_suspended=False) if resumes else patch


def bounded(record: JobRecord) -> str:
    """Return a record as JSON within ``RECORD_LIMIT``; the oldest details are dropped first."""
    text = compact_json(record)
    if len(text) > RECORD_LIMIT:
        old = (*(replace(one, placement=()) for one in record.attempts[:-1]), *record.attempts[-1:])
        record = replace(record, attempts=old)
        text = compact_json(record)
    while len(text) > RECORD_LIMIT and record.attempts:
        record = replace(record, attempts=record.attempts[(len(record.attempts) + 1) // 2 :])
        text = compact_json(record)
    return text


def summary(record: JobRecord, requests: JobRequests) -> str:
    """Return a readable summary of the attempts of a job, newest first."""
    lines = [_present(record, requests)]
    attempts = record.attempts[-_REPORTED_ATTEMPTS:]
    resumed_at = _resumed_at(record)
    for one in reversed(attempts):
        lines.append(_past(one, resumed_at))
        resumed_at = one.started_at
    return "; ".join(lines)


def _present(record: JobRecord, requests: JobRequests) -> str:
    spent = (
        f"hardware retries {record.hardware_retries} of {requests.max_retries}, "
        f"application retries {record.app_retries} of {requests.max_app_retries}"
    )
    nodes = ", ".join(one.node for one in record.exchanged)
    why = "; ".join(
        filter(None, (record.reason, nodes and f"without restart of other pods: {nodes} exchanged"))
    )
    reason = f" ({why})" if why else ""
    since = record.phase_since.isoformat(timespec="seconds").replace("+00:00", "Z")
    return f"attempt {record.attempt} {record.phase} since {since}{reason}, {spent}"


def _resumed_at(record: JobRecord) -> datetime | None:
    """Time at which the current attempt began to run; None if it does not run."""
    return record.phase_since if record.phase is JobPhase.RUNNING else None


def _past(one: AttemptRecord, resumed_at: datetime | None) -> str:
    failure = one.failure
    if failure is None:
        return f"attempt {one.attempt} ended by itself"
    where = f" on {failure.node}" if failure.node else ""
    took = [f"stopped in {format_duration(one.stopped_at - failure.began_at)}"]
    if resumed_at is not None:
        took.append(f"restarted {format_duration(resumed_at - one.stopped_at)} later")
    return f"attempt {one.attempt}: {failure.kind}: {failure.reason}{where}, {', '.join(took)}"


def attempt_metadata(
    record: JobRecord, *, is_queued: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """Annotations and environment of the pods of an attempt.

    Kueue treats a job with changed containers as another job and stops it.
    """
    reason = record.failure.reason if record.failure is not None else ""
    annotations = {ATTEMPT: str(record.attempt), RESTART_REASON: reason}
    if any(one.failure is not None and one.failure.loss_action for one in record.attempts):
        annotations |= {
            SKIP_STEPS: skipped_steps(record.attempts),
            BAD_LOSS: bad_loss(record.failure),
        }
    if is_queued:
        return annotations, {}
    variables = {ATTEMPT_VARIABLE: str(record.attempt), RESTART_REASON_VARIABLE: reason} | {
        variable: annotations[key] for key, variable in _OF_LOSSES.items() if key in annotations
    }
    return annotations, variables


def _merge(patch: Json, more: Json) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(patch.get(key), dict):
            _merge(patch[key], value)
        else:
            patch[key] = value
