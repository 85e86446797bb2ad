"""Kubeflow's ``TrainJob``, as Kubeflow Trainer 2.x operates it."""

from datetime import datetime
from typing import Final

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.jobs.conditions import ending_of, with_failure
from holdfast.adapters.kubernetes.jobs.job_kind import JobKind
from holdfast.adapters.kubernetes.jobs.job_set import JobSets
from holdfast.adapters.kubernetes.jobs.objects import JobState, PodRank, described
from holdfast.model.jobs import JobRecord
from holdfast.model.names import Labels

_SETS: Final = JobSets()


class TrainJobs(JobKind):
    """See ``JobKind``. Its pods and their templates are those of the JobSet of its runtime."""

    kind: Final = "TrainJob"
    api_version: Final = "trainer.kubeflow.org/v1alpha1"
    plural: Final = "trainjobs"
    body = _SETS
    pod_selector: Final = _SETS.pod_selector

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

    def member(self, pod: Json) -> PodRank | None:
        """See ``JobKind.member``."""
        return _SETS.member(pod)

    def suspension(self, *, is_suspended: bool) -> Json:
        """See ``JobKind.suspension``."""
        return _SETS.suspension(is_suspended=is_suspended)

    def attempt_patch(
        self, job: Json, annotations: dict[str, str], environment: dict[str, str]
    ) -> Json:
        """See ``JobKind.attempt_patch``. The trainer keeps fields that others add to a JobSet."""
        return _SETS.attempt_patch(job, annotations, environment)

    def renewed(self, job: Json, record: JobRecord) -> Json:
        """See ``JobKind.renewed``."""
        return _SETS.renewed(job, record)

    def failed(self, job: Json, reason: str, message: str, now: datetime) -> Json:
        """See ``JobKind.failed``."""
        return {"status": {"conditions": with_failure(job, reason, message, now)}}
