"""Ray's ``RayCluster``, as the KubeRay operator 1.3 and later operates it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.jobs.conditions import (
    changed_at,
    condition_of,
    ending_of,
    with_failure,
)
from holdfast.adapters.kubernetes.jobs.job_kind import JobKind
from holdfast.adapters.kubernetes.jobs.objects import (
    UNNUMBERED,
    Group,
    JobState,
    PodRank,
    described,
    group_of,
)
from holdfast.adapters.kubernetes.jobs.templates import template_patch, with_attempt_metadata
from holdfast.model.names import Labels

CLUSTER: Final = "ray.io/cluster"
POD: Final = "ray.io/is-ray-node=yes"

_TYPE: Final = "ray.io/node-type"
_HEAD: Final = "head"
_WORKER: Final = "worker"
_SUSPENDED: Final = "RayClusterSuspended"


class RayClusters(JobKind):
    """See ``JobKind``. The head has rank 0; the operator does not number workers.

    A cluster never ends by itself. A cluster that a RayJob or RayService created carries the
    annotations of that object, which do not apply to the cluster.
    """

    kind: Final = "RayCluster"
    api_version: Final = "ray.io/v1"
    plural: Final = "rayclusters"
    pod_selector: Final = POD

    def trimmed(self, job: Json, labels: Labels) -> JobState:
        """See ``JobKind.trimmed``."""
        spec = job.get("spec") or {}
        is_suspended = spec.get("suspend") is True
        state = JobState(
            **described(self, job, labels),
            started_at=changed_at(job, _SUSPENDED),
            is_suspended=is_suspended,
            is_stop_seen=condition_of(job, _SUSPENDED) is not None,
            ending=ending_of(job) if is_suspended else None,
            groups=groups_of(spec),
            obstacle=obstacle_of(spec),
        )
        return state if state.controller is None else replace(state, auto_resume=None, record=None)

    def member(self, pod: Json) -> PodRank | None:
        """See ``JobKind.member``."""
        labels: Mapping[str, str] = pod["metadata"].get("labels") or {}
        cluster, role = labels.get(CLUSTER), labels.get(_TYPE)
        if not cluster or role not in (_HEAD, _WORKER):
            return None
        containers = (pod.get("spec") or {}).get("containers") or [{}]
        container = containers[0].get("name") or ""  # Ray runs in the first container
        rank = 0 if role == _HEAD else UNNUMBERED
        return PodRank(job=cluster, rank=rank, container=container)

    def attempt_patch(
        self, job: Json, annotations: dict[str, str], environment: dict[str, str]
    ) -> Json:
        """See ``JobKind.attempt_patch``."""
        return {"spec": cluster_spec_patch(job.get("spec") or {}, annotations, environment)}

    def failed(self, job: Json, reason: str, message: str, now: datetime) -> Json:
        """See ``JobKind.failed``."""
        return {"status": {"conditions": with_failure(job, reason, message, now)}}


def groups_of(spec: Json) -> tuple[Group, ...]:
    """Return the head and the worker groups of a ``RayClusterSpec``."""
    head = group_of(1, _template(spec.get("headGroupSpec") or {}))
    workers = (group_of(_size(group), _template(group)) for group in _workers(spec))
    return (head, *(group for group in workers if group.ranks))


def obstacle_of(spec: Json) -> str | None:
    """Return what a ``RayClusterSpec`` lacks for its pods to be restarted together, if anything."""
    if spec.get("enableInTreeAutoscaling"):
        return "a Ray cluster of a fixed size, without enableInTreeAutoscaling"
    return None


def cluster_spec_patch(
    spec: Json, annotations: dict[str, str], environment: dict[str, str]
) -> Json:
    """Return the merge patch of a ``RayClusterSpec``; see ``JobKind.attempt_patch``."""
    head = template_patch(_template(spec.get("headGroupSpec") or {}), annotations, environment)
    workers = [
        {**group, "template": with_attempt_metadata(_template(group), annotations, environment)}
        for group in _workers(spec)
    ]
    return {"headGroupSpec": {"template": head}, "workerGroupSpecs": workers}


def _workers(spec: Json) -> Sequence[Json]:
    return spec.get("workerGroupSpecs") or ()


def _template(group: Json) -> Json:
    return group.get("template") or {}


def _size(group: Json) -> int:
    """Return the number of pods that the operator creates for a group."""
    if group.get("suspend"):
        return 0
    least, most = group.get("minReplicas") or 0, group.get("maxReplicas")
    replicas = max(least if group.get("replicas") is None else group["replicas"], least)
    return (replicas if most is None else min(replicas, most)) * max(
        group.get("numOfHosts") or 1, 1
    )
