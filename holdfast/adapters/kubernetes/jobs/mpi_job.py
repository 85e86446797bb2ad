"""Kubeflow's ``MPIJob``, as MPI operator 0.3 to 0.6 operates it."""

from collections.abc import Mapping
from typing import Final

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.jobs.objects import BY_NAME, PodRank
from holdfast.adapters.kubernetes.jobs.pytorch_job import (
    INDEX,
    JOB,
    LAUNCHER,
    OPERATOR,
    KubeflowKind,
)
from holdfast.model.jobs import Ending

_CONTROLLER: Final = "mpi-operator"
_ROLE: Final = "training.kubeflow.org/job-role"


class MPIJobs(KubeflowKind):
    """See ``JobKind``. The launcher has rank 0, worker i has rank i + 1.

    The operator creates the launcher's Job only once, so only the workers receive the attempt.
    """

    kind: Final = "MPIJob"
    api_version: Final = "kubeflow.org/v2beta1"
    plural: Final = "mpijobs"
    pod_selector: Final = f"{OPERATOR}={_CONTROLLER}"
    replica_specs = "mpiReplicaSpecs"
    restart_policy = "Never"

    def size(self, replica_type: str, replica: Json) -> int:
        """See ``KubeflowKind.size``."""
        return 1 if replica_type == LAUNCHER else super().size(replica_type, replica)

    def ending(self, job: Json) -> Ending | None:
        """See ``KubeflowKind.ending``.

        The operator also sets Failed when a worker is evicted; the job continues all the same.
        """
        return super().ending(job) if (job.get("status") or {}).get("completionTime") else None

    def member(self, pod: Json) -> PodRank | None:
        """See ``JobKind.member``."""
        labels: Mapping[str, str] = pod["metadata"].get("labels") or {}
        job, index = labels.get(JOB), str(labels.get(INDEX))
        if not job:
            return None
        if labels.get(_ROLE) == LAUNCHER.lower():
            return PodRank(job=job, rank=0, container="", owner=BY_NAME)
        return PodRank(job=job, rank=int(index) + 1, container="") if index.isdecimal() else None
