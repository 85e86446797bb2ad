"""What a job needs before its next attempt is let go, beside the record of that."""

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.jobs.job_kind import JobKind
from holdfast.adapters.kubernetes.jobs.objects import JobState
from holdfast.adapters.kubernetes.jobs.records import stamps
from holdfast.model.jobs import JobRecord


def prepare_attempt(api: Api, kind: JobKind, job: Json, state: JobState, record: JobRecord) -> Json:
    """Have a suspended job begin anew with all its ranks, as far as its operator can.

    Args:
        api: to write to.
        kind: of the job.
        job: the whole object.
        state: what was read of it.
        record: of the attempt to come.

    Returns:
        The object as it is then.

    Raises:
        Conflict: somebody has changed something meanwhile.

    """
    path, target = state.path, job
    if kind.body is not None:
        collection = f"/apis/{kind.body.api_version}/namespaces/{state.namespace}"
        path = f"{collection}/{kind.body.plural}/{state.name}"
        target = api.get(path)
        patch = kind.stamped(target, *stamps(record, is_queued=state.queue is not None))
        target = api.patch(path, _of(target) | patch)
    if patch := kind.renewed(target, record):
        target = api.patch(f"{path}/status", _of(target) | patch)
    return job if kind.body is not None else target


def _of(target: Json) -> Json:
    """What has a patch refused if somebody has changed the object since."""
    return {"metadata": {"resourceVersion": target["metadata"]["resourceVersion"]}}
