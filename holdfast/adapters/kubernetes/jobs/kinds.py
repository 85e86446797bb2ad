"""What differs between the kinds of jobs; one row in ``KINDS`` for each."""

from datetime import datetime
from typing import Final, Protocol

from holdfast.adapters.kubernetes.api_errors import Json
from holdfast.adapters.kubernetes.jobs.indexed_job import IndexedJobs
from holdfast.adapters.kubernetes.jobs.job_set import JobSets
from holdfast.adapters.kubernetes.jobs.mpi_job import MPIJobs
from holdfast.adapters.kubernetes.jobs.objects import JobState, Member
from holdfast.adapters.kubernetes.jobs.pytorch_job import PyTorchJobs
from holdfast.model.names import Labels


class JobKind(Protocol):
    """One kind of job objects. Everything is pure."""

    @property
    def api_version(self) -> str:
        """Such as ``kubeflow.org/v1``."""
        ...

    @property
    def plural(self) -> str:
        """The collection's name in addresses."""
        ...

    @property
    def pod_selector(self) -> str:
        """A label selector for the pods of all jobs of this kind, and as few others as can be."""
        ...

    def trimmed(self, job: Json, labels: Labels) -> JobState:
        """What is kept of an object. Must bear whatever the API server may send."""
        ...

    def member(self, pod: Json) -> Member | None:
        """Which rank a pod is; None if it is of no job of this kind."""
        ...

    def suspension(self, *, is_suspended: bool) -> Json:
        """The merge patch that has the operator end all pods, or make them."""
        ...

    def stamped(self, job: Json, annotations: dict[str, str], environment: dict[str, str]) -> Json:
        """The merge patch that gives the pods to come these annotations and variables.

        Args:
            job: the whole object.
            annotations: of the pods.
            environment: of their containers; empty where containers must stay as they are.

        """
        ...

    def failed(self, job: Json, reason: str, message: str, now: datetime) -> Json:
        """The merge patch of the status by which a suspended job has failed for good."""
        ...


KINDS: Final[tuple[JobKind, ...]] = (PyTorchJobs(), IndexedJobs(), JobSets(), MPIJobs())
