"""Jobs that Kueue admits: it alone suspends them, and we ask it to."""

from holdfast.adapters.kubernetes.api import Api, Json
from holdfast.adapters.kubernetes.jobs.objects import JobState
from holdfast.model.errors import BackendError

_JOB_UID = "kueue.x-k8s.io/job-uid"
"""Label of a ``Workload``: the uid of the job that it stands for."""


class Workloads:
    """Kueue's own objects, one for each job in a queue.

    ``spec.active`` is false while a job is not to be admitted; Kueue then suspends it. If we
    suspended it, Kueue, which has admitted it, would let it go on at once.
    """

    def __init__(self, api: Api) -> None:
        self._api = api

    def is_active(self, job: JobState) -> bool:
        """Whether the job may be admitted.

        Raises:
            BackendError: there is no ``Workload``, or it could not be read.

        """
        return (self._of(job).get("spec") or {}).get("active") is not False

    def activate(self, job: JobState, *, is_active: bool) -> None:
        """Let the job be admitted, or have it suspended."""
        workload = self._of(job)
        if ((workload.get("spec") or {}).get("active") is not False) == is_active:
            return
        about = workload["metadata"]
        patch = {
            "metadata": {"resourceVersion": about["resourceVersion"]},
            "spec": {"active": is_active},
        }
        self._api.patch(f"{_collection(job)}/{about['name']}", patch)

    def _of(self, job: JobState) -> Json:
        found = self._api.list(_collection(job), {"labelSelector": f"{_JOB_UID}={job.uid}"})
        workload = next(iter(found), None)
        if workload is None:
            raise BackendError(
                f"{job.key} has the label of a queue, but Kueue has no Workload for it"
            )
        return workload


def _collection(job: JobState) -> str:
    return f"/apis/kueue.x-k8s.io/v1beta1/namespaces/{job.namespace}/workloads"
