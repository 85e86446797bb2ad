"""Kubeflow's ``PyTorchJob``, as training-operator 1.7 to 1.9 operates it."""

from collections.abc import Iterable, Iterator
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
from holdfast.adapters.kubernetes.jobs.job_kind import JobKind
from holdfast.adapters.kubernetes.jobs.objects import JobState, PodRank, described, group_of
from holdfast.adapters.kubernetes.jobs.templates import template_patch
from holdfast.model.names import Labels, PodPhase

MASTER: Final = "Master"
CONTAINER: Final = "pytorch"

OPERATOR: Final = "training.kubeflow.org/operator-name"
JOB: Final = "training.kubeflow.org/job-name"
_TYPE: Final = "training.kubeflow.org/replica-type"
INDEX: Final = "training.kubeflow.org/replica-index"
_CONTROLLER: Final = "pytorchjob-controller"


class PyTorchJobs(JobKind):
    """See ``JobKind``. Node rank 0 is the master; the operator gives worker i rank i + 1."""

    kind: Final = "PyTorchJob"
    api_version: Final = "kubeflow.org/v1"
    plural: Final = "pytorchjobs"
    pod_selector: Final = f"{OPERATOR}={_CONTROLLER}"

    def trimmed(self, job: Json, labels: Labels) -> JobState:
        """See ``JobKind.trimmed``."""
        status = job.get("status") or {}
        policy = (job.get("spec") or {}).get("runPolicy") or {}
        return JobState(
            **described(self, job, labels),
            started_at=parse_time(status.get("startTime")),
            is_suspended=policy.get("suspend") is True,
            is_stop_seen=condition_of(job, SUSPENDED) is not None,
            ending=ending_of(job, PodPhase.SUCCEEDED.value),
            groups=tuple(
                group_of(
                    replica.get("replicas", 1),
                    replica.get("template") or {},
                    replica.get("restartPolicy") or "OnFailure",
                )
                for _, replica in _replicas(job)
            ),
        )

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

    def suspension(self, *, is_suspended: bool) -> Json:
        """See ``JobKind.suspension``."""
        return {"spec": {"runPolicy": {"suspend": is_suspended}}}

    def attempt_patch(
        self, job: Json, annotations: dict[str, str], environment: dict[str, str]
    ) -> Json:
        """See ``JobKind.attempt_patch``."""
        patch = replica_patch(_replicas(job), annotations, environment)
        return {"spec": {"pytorchReplicaSpecs": patch}}

    def failed(self, job: Json, reason: str, message: str, now: datetime) -> Json:
        """See ``JobKind.failed``."""
        return failure(job, reason, message, now)


def replica_patch(
    replicas: Iterable[tuple[str, Json]], annotations: dict[str, str], environment: dict[str, str]
) -> Json:
    """Return the patch of a Kubeflow job's replica specs; see ``JobKind.attempt_patch``."""
    return {
        name: {"template": template_patch(one.get("template") or {}, annotations, environment)}
        for name, one in replicas
    }


def failure(job: Json, reason: str, message: str, now: datetime) -> Json:
    """Return the status of a failed Kubeflow job; see ``JobKind.failed``."""
    times = ("lastUpdateTime", "lastTransitionTime")
    conditions = with_failure(job, reason, message, now, times=times)
    return {"status": {"conditions": conditions, "completionTime": format_time(now)}}


def _replicas(job: Json) -> Iterator[tuple[str, Json]]:
    """Yield the replica specs, the master first, as it is rank 0."""
    replicas = (job.get("spec") or {}).get("pytorchReplicaSpecs") or {}
    yield from sorted(replicas.items(), key=lambda item: (item[0] != MASTER, item[0]))
