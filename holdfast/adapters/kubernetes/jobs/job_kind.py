"""What differs between the kinds of jobs."""

from datetime import datetime
from typing import Protocol

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.jobs.objects import JobState, Named, PodRank
from holdfast.model.jobs import JobRecord
from holdfast.model.names import Labels


class JobKind(Named, Protocol):
    """One kind of job objects. Everything is pure."""

    body: "JobKind | None" = None
    """The kind of the object that is made for each job, bears its name and has its pods; None if
    pods are its own."""

    @property
    def pod_selector(self) -> str:
        """A label selector for the pods of all jobs of this kind, and as few others as can be."""
        ...

    def trimmed(self, job: Json, labels: Labels) -> JobState:
        """What is kept of an object. Must bear whatever the API server may send."""
        ...

    def member(self, pod: Json) -> PodRank | None:
        """Which rank a pod is; None if it is of no job of this kind."""
        ...

    def suspension(self, *, is_suspended: bool) -> Json:
        """The merge patch that has the operator end all pods, or make them."""
        ...

    def stamped(self, job: Json, annotations: dict[str, str], environment: dict[str, str]) -> Json:
        """The merge patch that gives the pods to come these annotations and variables.

        Args:
            job: the whole object; of kinds with a body, that.
            annotations: of the pods.
            environment: of their containers; empty where containers must stay as they are.

        """
        ...

    def renewed(self, job: Json, record: JobRecord) -> Json:  # noqa: ARG002 - most need none
        """The merge patch of a suspended job's status that has ranks run again that have ended.

        Args:
            job: the whole object; of kinds with a body, that.
            record: of the attempt to come.

        Returns:
            Nothing where all run again anyway, or none can, or it was done for this attempt.

        """
        return {}

    def failed(self, job: Json, reason: str, message: str, now: datetime) -> Json:
        """The merge patch of the status by which a suspended job has failed for good."""
        ...
