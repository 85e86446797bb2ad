"""Job objects and pods as the API server gives them, of which only what matters is said."""

from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.adapters.kubernetes.client.values import compact_json
from holdfast.adapters.kubernetes.jobs.objects import JobState, PodState, pod_state
from holdfast.adapters.kubernetes.jobs.pytorch_job import PyTorchJobs
from holdfast.adapters.kubernetes.jobs.requests import requests_of
from holdfast.model.jobs import JobPhase, JobRecord
from holdfast.model.names import JOB_RECORD, RECORD_OF, Labels

LABELS = Labels()
KIND = PyTorchJobs()
BEGAN = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
TRUE = {"status": "True"}
NO_SPACE = """Traceback (most recent call last):
  File "train.py", line 7, in <module>
    save()
OSError: [Errno 28] No space left on device
"""


def at(seconds: float) -> str:
    return (BEGAN + timedelta(seconds=seconds)).isoformat(timespec="seconds").replace("+00:00", "Z")


def a_job_object(
    *,
    suspend: bool = False,
    conditions: tuple[str, ...] = ("Running",),
    record: JobRecord | None = None,
    annotations: dict[str, str | None] | None = None,
    started: float = 0,
    workers: int = 1,
    pods: dict[str, Any] | None = None,
    **metadata: Any,
) -> dict[str, Any]:
    container = {"name": "pytorch", "resources": {"limits": {"nvidia.com/gpu": "8", "cpu": "4"}}}
    template = {"spec": {"containers": [container], **(pods or {})}}
    replica = {"replicas": 1, "restartPolicy": "OnFailure", "template": template}
    said: dict[str, Any] = {LABELS.enable_job_auto_resume: "true"}
    said |= {} if record is None else {JOB_RECORD: compact_json(record)}
    said |= annotations or {}
    if JOB_RECORD in said:
        said.setdefault(RECORD_OF, metadata.get("uid", "job-uid"))
    return {
        "metadata": {
            "namespace": "default",
            "name": "llama",
            "uid": "job-uid",
            "resourceVersion": "7",
            "creationTimestamp": at(-5),
            "annotations": {key: value for key, value in said.items() if value is not None},
            **metadata,
        },
        "spec": {
            "runPolicy": {"suspend": suspend},
            "pytorchReplicaSpecs": {"Worker": {**replica, "replicas": workers}, "Master": replica},
        },
        "status": {
            "startTime": at(started),
            "conditions": [
                {"type": kind, "message": f"it is {kind}", **TRUE} for kind in conditions
            ],
        },
    }


def a_state(**changes: Any) -> JobState:
    return KIND.trimmed(a_job_object(**changes), LABELS)


def requests(state: JobState):
    return requests_of(state, LABELS)


def a_record(phase: JobPhase = JobPhase.RUNNING, since: float = 10, **changes: Any) -> JobRecord:
    values = {
        "phase_since": BEGAN + timedelta(seconds=since),
        "attempt": 1,
        "started_at": BEGAN,
        **changes,
    }
    return JobRecord(phase=phase, **values)


def a_pod(rank: int = 0, **changes: Any) -> PodState:
    pod = a_pod_object(rank, **changes)
    member = KIND.member(pod)
    assert member is not None
    return pod_state(pod, member)


def a_pod_object(
    rank: int = 0,
    *,
    node: str = "a",
    phase: str = "Running",
    uid: str = "",
    status: dict[str, Any] | None = None,
    **metadata: Any,
) -> dict[str, Any]:
    kind, index = ("master", 0) if rank == 0 else ("worker", rank - 1)
    return {
        "metadata": {
            "namespace": "default",
            "name": f"llama-{kind}-{index}",
            "uid": uid or f"pod-{rank}",
            "creationTimestamp": at(0),
            "labels": {
                "training.kubeflow.org/job-name": "llama",
                "training.kubeflow.org/replica-type": kind,
                "training.kubeflow.org/replica-index": str(index),
            },
            "ownerReferences": [{"controller": True, "uid": "job-uid"}],
            **metadata,
        },
        "spec": {
            "nodeName": node,
            "containers": [
                {
                    "name": "pytorch",
                    "env": [{"name": "RANK", "value": str(rank)}],
                    "resources": {"limits": {"nvidia.com/gpu": "8"}},
                }
            ],
        },
        "status": {"phase": phase, **(status or {})},
    }


def container(**state: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "pytorch", **state}]}


def ended(code: int, seconds: float = 20, reason: str = "Error") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "finishedAt": at(seconds), "reason": reason}}


def disrupted(reason: str) -> dict[str, Any]:
    return {"conditions": [{"type": "DisruptionTarget", "reason": reason, **TRUE}]}
