"""Kubeflow's ``PyTorchJob``, as training-operator 1.7 to 1.9 operates it."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.client.values import format_time, parse_time
from holdfast.adapters.kubernetes.jobs.conditions import (
    SUSPENDED,
    condition_of,
    ending_of,
    with_failure,
)
from holdfast.adapters.kubernetes.jobs.job_kind import RunPolicyKind
from holdfast.adapters.kubernetes.jobs.objects import JobState, PodRank, described, group_of
from holdfast.adapters.kubernetes.jobs.templates import template_patch
from holdfast.model.jobs import Ending
from holdfast.model.names import Labels, PodPhase

MASTER: Final = "Master"
LAUNCHER: Final = "Launcher"
"""Type of the replica of an MPIJob that its operator creates only once, so without the attempt."""

CONTAINER: Final = "pytorch"

OPERATOR: Final = "training.kubeflow.org/operator-name"
JOB: Final = "training.kubeflow.org/job-name"
_TYPE: Final = "training.kubeflow.org/replica-type"
INDEX: Final = "training.kubeflow.org/replica-index"
_CONTROLLER: Final = "pytorchjob-controller"


class KubeflowKind(RunPolicyKind):
    """Kind of job with replica specs, which Kubeflow's training and MPI operators operate."""

    replica_specs: str
    """Key of the replica specs."""

    restart_policy: str
    """Restart policy of a replica spec that has none."""

    def replicas(self, job: Json) -> Iterator[tuple[str, Json]]:
        """Yield the replica specs with their types, that of rank 0 first."""
        replicas = (job.get("spec") or {}).get(self.replica_specs) or {}
        yield from sorted(replicas.items(), key=lambda item: (item[0] != MASTER, item[0]))

    def size(self, replica_type: str, replica: Json) -> int:  # noqa: ARG002
        """Return the number of pods of a replica spec."""
        return replica.get("replicas", 1)  # type: ignore[no-any-return]

    def ending(self, job: Json) -> Ending | None:
        """Return how the job ended; None if it has not."""
        return ending_of(job, PodPhase.SUCCEEDED.value)

    def trimmed(self, job: Json, labels: Labels) -> JobState:
        """See ``JobKind.trimmed``."""
        policy = (job.get("spec") or {}).get("runPolicy") or {}
        return JobState(
            **described(self, job, labels),
            started_at=parse_time((job.get("status") or {}).get("startTime")),
            is_suspended=policy.get("suspend") is True,
            is_stop_seen=condition_of(job, SUSPENDED) is not None,
            ending=self.ending(job),
            groups=tuple(
                group_of(
                    self.size(name, replica),
                    replica.get("template") or {},
                    replica.get("restartPolicy") or self.restart_policy,
                )
                for name, replica in self.replicas(job)
            ),
        )

    def attempt_patch(
        self, job: Json, annotations: dict[str, str], environment: dict[str, str]
    ) -> Json:
        """See ``JobKind.attempt_patch``."""
        patch = {
            name: {"template": template_patch(one.get("template") or {}, annotations, environment)}
            for name, one in self.replicas(job)
            if name != LAUNCHER
        }
        return {"spec": {self.replica_specs: patch}}

    def failed(self, job: Json, reason: str, message: str, now: datetime) -> Json:
        """See ``JobKind.failed``."""
        times = ("lastUpdateTime", "lastTransitionTime")
        conditions = with_failure(job, reason, message, now, times=times)
        return {"status": {"conditions": conditions, "completionTime": format_time(now)}}


class PyTorchJobs(KubeflowKind):
    """See ``JobKind``. Node rank 0 is the master; the operator gives worker i rank i + 1."""

    kind: Final = "PyTorchJob"
    api_version: Final = "kubeflow.org/v1"
    plural: Final = "pytorchjobs"
    pod_selector: Final = f"{OPERATOR}={_CONTROLLER}"
    replica_specs = "pytorchReplicaSpecs"
    restart_policy = "OnFailure"

    def member(self, pod: Json) -> PodRank | None:
        """See ``JobKind.member``."""
        labels = pod["metadata"].get("labels") or {}
        job, index = labels.get(JOB), str(labels.get(INDEX))
        if not job or not index.isdecimal():
            return None
        # Without a master the first worker is rank 0; its role is still worker.
        is_master = labels.get(_TYPE) == MASTER.lower()
        has_master = not is_master and any(
            one.get("name") in ("RANK", "PET_NODE_RANK") and one.get("value") == str(int(index) + 1)
            for container in (pod.get("spec") or {}).get("containers") or ()
            for one in container.get("env") or ()
        )
        return PodRank(job=job, rank=int(index) + has_master, container=CONTAINER)
