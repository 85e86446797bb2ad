"""Preparation of the next attempt of a job, beside the write of its record."""

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.jobs.job_kind import JobKind
from holdfast.adapters.kubernetes.jobs.objects import JobState
from holdfast.adapters.kubernetes.jobs.records import attempt_metadata
from holdfast.model.jobs import JobRecord


def prepare_attempt(api: Api, kind: JobKind, job: Json, state: JobState, record: JobRecord) -> Json:
    """Reset a suspended job so that all its ranks restart, as far as its operator supports that.

    Args:
        api: client for the writes.
        kind: kind of the job.
        job: the whole object.
        state: parsed state of the job.
        record: record of the next attempt.

    Returns:
        The patched object.

    Raises:
        Conflict: an object was changed concurrently.

    """
    path, target = state.path, job
    if kind.body is not None:
        collection = f"/apis/{kind.body.api_version}/namespaces/{state.namespace}"
        path = f"{collection}/{kind.body.plural}/{state.name}"
        target = api.get(path)
        patch = kind.attempt_patch(
            target, *attempt_metadata(record, is_queued=state.queue is not None)
        )
        target = api.patch(path, _of(target) | patch)
    if patch := kind.renewed(target, record):
        target = api.patch(f"{path}/status", _of(target) | patch)
    return job if kind.body is not None else target


def _of(target: Json) -> Json:
    """Precondition of a patch: the resource version of the object."""
    return {"metadata": {"resourceVersion": target["metadata"]["resourceVersion"]}}
