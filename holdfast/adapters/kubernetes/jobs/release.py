"""Release of a job whose auto-resume was disabled."""

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.jobs.conditions import SUSPENDED_PHASES
from holdfast.adapters.kubernetes.jobs.job_kind import JobKind
from holdfast.adapters.kubernetes.jobs.objects import JobState
from holdfast.adapters.kubernetes.jobs.queues import Workloads
from holdfast.adapters.kubernetes.jobs.records import is_restart, release_patch
from holdfast.model.jobs import JobRecord


def awaits_restart(state: JobState, record: JobRecord | None) -> bool:
    """Whether a job is suspended by the controller until its next attempt."""
    return record is not None and record.phase in SUSPENDED_PHASES and state.ending is None


def release_job(
    api: Api, workloads: Workloads, kind: JobKind, state: JobState, record: JobRecord | None
) -> Json:
    """Remove the record of a job, and resume the job if the controller suspended it.

    Returns:
        the patched job object.

    Raises:
        BackendError: the patch failed; the job still has its record.

    """
    if state.queue is not None:
        _give_to_queue(workloads, state, record)
    is_suspended = awaits_restart(state, record) and state.queue is None and state.is_suspended
    patch = release_patch(state, kind, resumes=is_suspended or state.is_orphaned)
    return api.patch(state.path, patch)


def _give_to_queue(workloads: Workloads, state: JobState, record: JobRecord | None) -> None:
    """Let Kueue admit a job that the controller kept out of its queue."""
    if awaits_restart(state, record):
        workloads.release(state)
    elif record is not None and is_restart(record) and state.ending is None:
        workloads.admit(state, record.attempt)
