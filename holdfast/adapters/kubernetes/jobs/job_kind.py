"""Interface of the kinds of jobs."""

from datetime import datetime
from typing import Protocol

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.jobs.objects import JobState, Named, PodRank
from holdfast.model.jobs import JobRecord
from holdfast.model.names import Labels


class JobKind(Named, Protocol):
    """Kind of job objects. All methods are pure."""

    body: "JobKind | None" = None
    """Kind of the object that is created for each job, has its name and owns its pods; None if the
    job owns its pods itself."""

    @property
    def pod_selector(self) -> str:
        """Label selector of the pods of all jobs of this kind, as narrow as labels permit."""
        ...

    def trimmed(self, job: Json, labels: Labels) -> JobState:
        """Return the state of an object. Accepts anything that the API server may send."""
        ...

    def member(self, pod: Json) -> PodRank | None:
        """Return the job and rank of a pod; None if its job is not of this kind."""
        ...

    def suspension(self, *, is_suspended: bool) -> Json:
        """Return the merge patch by which the operator deletes all pods, or creates them."""
        return {"spec": {"suspend": is_suspended}}

    def attempt_patch(
        self, job: Json, annotations: dict[str, str], environment: dict[str, str]
    ) -> Json:
        """Return the merge patch that gives future pods these annotations and variables.

        Args:
            job: the whole object; for kinds with a body, the body object.
            annotations: annotations of the pods.
            environment: variables of their containers; empty if containers must not change.

        """
        ...

    def renewed(self, job: Json, record: JobRecord) -> Json:  # noqa: ARG002 - most need none
        """Return the merge patch of a suspended job's status that reruns ranks that have ended.

        Args:
            job: the whole object; for kinds with a body, the body object.
            record: record of the next attempt.

        Returns:
            Empty if all ranks rerun anyway, none can, or it was done for this attempt already.

        """
        return {}

    def failed(self, job: Json, reason: str, message: str, now: datetime) -> Json:
        """Return the merge patch of the status that sets a suspended job failed permanently."""
        ...


class RunPolicyKind(JobKind):
    """Kind of job with a ``runPolicy``, as Kubeflow introduced it."""

    def suspension(self, *, is_suspended: bool) -> Json:
        """See ``JobKind.suspension``."""
        return {"spec": {"runPolicy": {"suspend": is_suspended}}}
