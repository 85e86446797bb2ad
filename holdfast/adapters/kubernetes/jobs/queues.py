"""Kueue workloads of jobs: only Kueue suspends these jobs, at Holdfast's request."""

from holdfast.adapters.kubernetes.client.api import Api, Json
from holdfast.adapters.kubernetes.client.errors import NotFound
from holdfast.adapters.kubernetes.jobs.objects import JobState
from holdfast.model.errors import BackendError
from holdfast.model.names import ATTEMPT

_GROUP = "/apis/kueue.x-k8s.io"
_JOB_UID = "kueue.x-k8s.io/job-uid"
"""Label of a ``Workload``: UID of its job."""


class Workloads:
    """Kueue's ``Workload`` objects, one for each job in a queue.

    ``spec.active: false`` prevents admission; Kueue then suspends the job. If Holdfast suspended
    the job itself, Kueue, which has admitted it, would resume it at once. An annotation records the
    attempt for which the field was last set back to true.

    Kueue serves workloads as ``v1beta1`` and, from 0.15 on, as ``v1beta2``: the used fields are
    equal in both, so the client uses the version that the API server prefers.
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
        """Let Kueue admit an attempt; only once, since others may have reasons to revoke it."""
        workload = self._of(job)
        if _admitted(workload) != str(attempt):
            self._write(job, workload, attempt=str(attempt), is_active=True)

    def release(self, job: JobState) -> None:
        """Let Kueue admit the job independently of attempts."""
        workload = self._of(job)
        if not _is_active(workload):
            self._write(job, workload, attempt=None, is_active=True)

    def suspend(self, job: JobState) -> None:
        """Have Kueue suspend the job and not admit it again."""
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
            self._version = ""  # Kueue was upgraded or uninstalled
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
