"""Kubeflow's ``MPIJob``, as MPI operator 0.3 to 0.6 operates it."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.client.values import parse_time
from holdfast.adapters.kubernetes.jobs.conditions import SUSPENDED, condition_of, ending_of
from holdfast.adapters.kubernetes.jobs.job_kind import JobKind
from holdfast.adapters.kubernetes.jobs.objects import (
    BY_NAME,
    JobState,
    PodRank,
    described,
    group_of,
)
from holdfast.adapters.kubernetes.jobs.pytorch_job import (
    INDEX,
    JOB,
    OPERATOR,
    failure,
    replica_patch,
)
from holdfast.model.names import Labels, PodPhase

_CONTROLLER: Final = "mpi-operator"
_ROLE: Final = "training.kubeflow.org/job-role"
_LAUNCHER: Final = "Launcher"


class MPIJobs(JobKind):
    """See ``JobKind``. The launcher has rank 0, worker i has rank i + 1.

    The operator creates the launcher's Job only once, so only the workers receive the attempt.
    """

    kind: Final = "MPIJob"
    api_version: Final = "kubeflow.org/v2beta1"
    plural: Final = "mpijobs"
    pod_selector: Final = f"{OPERATOR}={_CONTROLLER}"

    def trimmed(self, job: Json, labels: Labels) -> JobState:
        """See ``JobKind.trimmed``."""
        status = job.get("status") or {}
        policy = (job.get("spec") or {}).get("runPolicy") or {}
        # The operator also sets Failed when a worker is evicted; the job continues all the same.
        has_ended = bool(status.get("completionTime"))
        return JobState(
            **described(self, job, labels),
            started_at=parse_time(status.get("startTime")),
            is_suspended=policy.get("suspend") is True,
            is_stop_seen=condition_of(job, SUSPENDED) is not None,
            ending=ending_of(job, PodPhase.SUCCEEDED.value) if has_ended else None,
            groups=tuple(
                group_of(
                    1 if name == _LAUNCHER else replica.get("replicas", 1),
                    replica.get("template") or {},
                    replica.get("restartPolicy") or "Never",
                )
                for name, replica in _replicas(job)
            ),
        )

    def member(self, pod: Json) -> PodRank | None:
        """See ``JobKind.member``."""
        labels: Mapping[str, str] = pod["metadata"].get("labels") or {}
        job, index = labels.get(JOB), str(labels.get(INDEX))
        if not job:
            return None
        if labels.get(_ROLE) == _LAUNCHER.lower():
            return PodRank(job=job, rank=0, container="", owner=BY_NAME)
        return PodRank(job=job, rank=int(index) + 1, container="") if index.isdecimal() else None

    def suspension(self, *, is_suspended: bool) -> Json:
        """See ``JobKind.suspension``."""
        return {"spec": {"runPolicy": {"suspend": is_suspended}}}

    def attempt_patch(
        self, job: Json, annotations: dict[str, str], environment: dict[str, str]
    ) -> Json:
        """See ``JobKind.attempt_patch``."""
        workers = (one for one in _replicas(job) if one[0] != _LAUNCHER)
        return {"spec": {"mpiReplicaSpecs": replica_patch(workers, annotations, environment)}}

    def failed(self, job: Json, reason: str, message: str, now: datetime) -> Json:
        """See ``JobKind.failed``."""
        return failure(job, reason, message, now)


def _replicas(job: Json) -> Iterator[tuple[str, Json]]:
    replicas = (job.get("spec") or {}).get("mpiReplicaSpecs") or {}
    yield from sorted(replicas.items())
