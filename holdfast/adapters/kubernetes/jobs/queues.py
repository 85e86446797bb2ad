"""Jobs that Kueue admits: it alone suspends them, and we ask it to."""

from holdfast.adapters.kubernetes.client.api import Api, Json
from holdfast.adapters.kubernetes.client.errors import NotFound
from holdfast.adapters.kubernetes.jobs.objects import JobState
from holdfast.model.errors import BackendError
from holdfast.model.names import ATTEMPT

_GROUP = "/apis/kueue.x-k8s.io"
_JOB_UID = "kueue.x-k8s.io/job-uid"
"""Label of a ``Workload``: the uid of the job that it stands for."""


class Workloads:
    """Kueue's own objects, one for each job in a queue.

    ``spec.active`` is false while a job is not to be admitted; Kueue then suspends it. If we
    suspended it, Kueue, which has admitted it, would let it go on at once. An annotation says for
    which attempt it was set back to true last.

    Kueue has served them as ``v1beta1`` and, from 0.15 on, as ``v1beta2``; what is used here is the
    same in both, so the version is the one that the API server prefers.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._version = ""

    def is_active(self, job: JobState) -> bool:
        """Whether the job may be admitted.

        Raises:
            BackendError: there is no ``Workload``, or it could not be read.

        """
        return _is_active(self._of(job))

    def admit(self, job: JobState, attempt: int) -> None:
        """Let an attempt be admitted: once, as others may have reasons to take it back."""
        workload = self._of(job)
        if _admitted(workload) != str(attempt):
            self._write(job, workload, attempt=str(attempt), is_active=True)

    def release(self, job: JobState) -> None:
        """Let the job be admitted after all."""
        workload = self._of(job)
        if not _is_active(workload):
            self._write(job, workload, attempt=None, is_active=True)

    def suspend(self, job: JobState) -> None:
        """Have the job suspended, and not admitted again."""
        workload = self._of(job)
        if _is_active(workload) or _admitted(workload) is not None:
            self._write(job, workload, attempt=None, is_active=False)

    def _write(
        self, job: JobState, workload: Json, *, attempt: str | None, is_active: bool
    ) -> None:
        about = workload["metadata"]
        patch = {
            "metadata": {
                "resourceVersion": about["resourceVersion"],
                "annotations": {ATTEMPT: attempt},
            },
            "spec": {"active": is_active},
        }
        self._api.patch(f"{self._collection(job)}/{about['name']}", patch)

    def _of(self, job: JobState) -> Json:
        selector = {"labelSelector": f"{_JOB_UID}={job.uid}"}
        try:
            workload = next(iter(self._api.list(self._collection(job), selector)), None)
        except NotFound:
            self._version = ""  # Kueue was upgraded, or taken away
            raise
        if workload is None:
            raise BackendError(
                f"{job.key} has the label of a queue, but Kueue has no Workload for it"
            )
        return workload

    def _collection(self, job: JobState) -> str:
        if not self._version:
            self._version = self._api.get(_GROUP)["preferredVersion"]["version"]
        return f"{_GROUP}/{self._version}/namespaces/{job.namespace}/workloads"


def _is_active(workload: Json) -> bool:
    return (workload.get("spec") or {}).get("active") is not False


def _admitted(workload: Json) -> str | None:
    attempt: str | None = (workload["metadata"].get("annotations") or {}).get(ATTEMPT)
    return attempt
