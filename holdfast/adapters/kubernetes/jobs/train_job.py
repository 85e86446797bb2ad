"""Kubeflow's ``TrainJob``, as Kubeflow Trainer 2.x operates it."""

from datetime import datetime
from typing import Final

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.jobs.conditions import ending_of, with_failure
from holdfast.adapters.kubernetes.jobs.job_set import JobSetPods, JobSets
from holdfast.adapters.kubernetes.jobs.objects import JobState, described
from holdfast.model.names import Labels


class TrainJobs(JobSetPods):
    """See ``JobKind``. Its pods and their templates are those of the JobSet of its runtime.

    The trainer keeps fields that others add to a JobSet.
    """

    kind: Final = "TrainJob"
    api_version: Final = "trainer.kubeflow.org/v1alpha1"
    plural: Final = "trainjobs"
    body = JobSets()

    def trimmed(self, job: Json, labels: Labels) -> JobState:
        """See ``JobKind.trimmed``."""
        return JobState(
            **described(self, job, labels),
            started_at=None,
            is_suspended=(job.get("spec") or {}).get("suspend") is True,
            is_stop_seen=False,
            ending=ending_of(job, "Complete"),
            groups=(),
        )

    def failed(self, job: Json, reason: str, message: str, now: datetime) -> Json:
        """See ``JobKind.failed``."""
        return {"status": {"conditions": with_failure(job, reason, message, now)}}
