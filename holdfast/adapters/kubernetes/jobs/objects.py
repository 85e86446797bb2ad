"""Job objects and their pods, trimmed to what Holdfast reads of them."""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.client.values import EPOCH, parse_time
from holdfast.adapters.kubernetes.jobs.containers import Exit, earliest_exit, main_container
from holdfast.model.jobs import Ending
from holdfast.model.names import (
    APP_MAX_RETRY_COUNT,
    HEARTBEAT_FILE,
    HEARTBEAT_TIMEOUT,
    JOB_RECORD,
    JOB_STATUS,
    LOG_MONITORING,
    LOG_MONITORING_CONFIG_MAP,
    RECORD_OF,
    STARTUP_TIMEOUT,
    Labels,
    PodPhase,
)

QUEUE: Final = "kueue.x-k8s.io/queue-name"
"""Label of a job that Kueue suspends and lets go."""

BY_NAME: Final = "*"
"""In place of the uid of a pod's job where nothing but its name is written on the pod."""

UNNUMBERED: Final = -1
"""In place of the rank of a pod to which its operator gives no number."""

_PASSIVE: Final = ("CronJob", "Workflow")
"""Kinds of owners that leave their jobs alone once they are there."""

_DISRUPTED: Final = "DisruptionTarget"
"""Pod condition: somebody is about to end the pod, and the reason says who."""

_TOO_MUCH: Final = "TerminationByKubelet"
"""Reason of that condition where the node is short of something, or shuts down."""

_ENDED: Final = (-signal.SIGTERM, -signal.SIGKILL)
"""How containers end whose pod is deleted."""

_GRACE_S: Final = 30  # Kubernetes' default


class Named(Protocol):
    """What the objects of a kind are called."""

    @property
    def kind(self) -> str:
        """Such as ``PyTorchJob``."""
        ...

    @property
    def api_version(self) -> str:
        """Such as ``kubeflow.org/v1``."""
        ...

    @property
    def plural(self) -> str:
        """The collection's name in addresses."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOwner:
    """The object that made a job, and starts and stops it."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Pods of a job that are made from one template."""

    ranks: int
    pods: Json
    """What of their ``spec`` says where they fit: selector, affinity, tolerations, containers'
    resources."""

    grace: timedelta
    restart_policy: str = ""
    """That of the job's kind for them; empty if it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """What a job object says. Two are equal if they say the same, whatever their version."""

    kind: str
    api_version: str
    plural: str
    namespace: str
    name: str
    uid: str
    resource_version: str = field(compare=False)
    created_at: datetime
    started_at: datetime | None
    """Since when its operator has it run, without a break."""

    is_suspended: bool
    is_stop_seen: bool
    """Its operator says that it is suspended."""

    is_leaving: bool
    """It is being deleted."""

    ending: Ending | None
    groups: tuple[Group, ...]
    queue: str | None
    record: str | None
    """Value of the annotation, as of all below; None where there is none."""

    status: str | None
    is_marked: bool
    """It has, or has had, a record of its own."""

    auto_resume: str | None
    max_retries: str | None
    max_app_retries: str | None
    log_rules: str | None
    log_rules_from: str | None
    heartbeat_file: str | None
    heartbeat_timeout: str | None
    startup_timeout: str | None
    controller: JobOwner | None
    obstacle: str | None = None
    """What it would have to be to be restarted as a whole; None if it can be, by itself."""

    body: str = ""
    """uid of the object that was made for it and has its pods; empty if it has them itself."""

    part: str = ""
    """Which of its pods are of its present run, where its operator calls those of each another."""

    is_restarting: bool = False
    """Its operator is about to start it anew by itself."""

    completed: frozenset[int] = frozenset()
    """Ranks that have ended well, which its operator never runs again."""

    @property
    def key(self) -> str:
        """How people and records name it, such as ``pytorchjob/team-a/llama``."""
        return f"{self.kind.lower()}/{self.namespace}/{self.name}"

    @property
    def path(self) -> str:
        """Its address."""
        return f"/apis/{self.api_version}/namespaces/{self.namespace}/{self.plural}/{self.name}"

    @property
    def is_stranded(self) -> bool:
        """Whether it was us who suspended it, though the record of that is gone."""
        is_ours = self.is_marked and self.record is None and self.queue is None
        return is_ours and self.is_suspended and self.ending is None

    def owns(self, pod: "PodState") -> bool:
        """Whether a pod with its name is of it, and not of one of that name before."""
        is_named = pod.owner == BY_NAME and pod.created_at >= self.created_at
        return is_named or pod.owner == (self.body or self.uid)

    def embodied(self, body: "JobState") -> "JobState":
        """The same job with what only the object says that was made for it."""
        return replace(
            self,
            body=body.uid,
            groups=body.groups,
            is_stop_seen=body.is_stop_seen,
            started_at=body.started_at,
            obstacle=self.obstacle or body.obstacle,
        )

    @property
    def ranks(self) -> int:
        """How many there are in the whole job."""
        return sum(group.ranks for group in self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRank:
    """Which rank of which job a pod is."""

    job: str
    """Name of the object, in the pod's namespace."""

    rank: int
    """Or ``UNNUMBERED``."""

    container: str
    """The one that trains; empty if all do."""

    owner: str = ""
    """uid of the job, where the pod was made by a part of it; or ``BY_NAME``."""

    part: str = ""
    """See ``JobState.part``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodState:
    """A pod of a job."""

    namespace: str
    name: str
    uid: str
    owner: str
    """uid of its job, or of the object that made it if that is none."""

    member: PodRank
    node: str
    """Empty until it has one."""

    container: str
    """The one that trains, or is most likely to."""

    phase: str
    created_at: datetime
    is_terminating: bool
    resources: Mapping[str, int]
    """Devices that it holds."""

    exit: Exit | None
    """Of the pod if it has ended, else of its container's last run, if it was started again."""

    evicted: str
    """By whom, if it has to leave and has not failed; else empty."""

    @property
    def path(self) -> str:
        """Its address."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    @property
    def has_ended(self) -> bool:
        """Whether no container will run in it any more."""
        return self.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)


def described(kind: Named, job: Json, labels: Labels) -> dict[str, Any]:
    """The fields of a ``JobState`` that are found at the same places in all kinds."""
    metadata = job["metadata"]
    return {
        "kind": kind.kind,
        "api_version": kind.api_version,
        "plural": kind.plural,
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "resource_version": metadata.get("resourceVersion", ""),
        "created_at": parse_time(metadata.get("creationTimestamp")) or EPOCH,
        "is_leaving": bool(metadata.get("deletionTimestamp")),
        "queue": (metadata.get("labels") or {}).get(QUEUE),
        "controller": _controller(metadata),
        **annotated(job, labels),
    }


def annotated(job: Json, labels: Labels) -> dict[str, str | bool | None]:
    """The fields of a ``JobState`` that are annotations.

    The record of another job, of which this one is a copy, is none.
    """
    found: Mapping[str, str] = job["metadata"].get("annotations") or {}
    uid = job["metadata"]["uid"]
    is_own = found.get(RECORD_OF, uid) == uid
    return {
        "record": found.get(JOB_RECORD) if is_own else None,
        "status": found.get(JOB_STATUS) if is_own else None,
        "is_marked": found.get(RECORD_OF) == uid,
        "auto_resume": found.get(labels.enable_job_auto_resume),
        "max_retries": found.get(labels.job_max_retry_count),
        "max_app_retries": found.get(APP_MAX_RETRY_COUNT),
        "log_rules": found.get(LOG_MONITORING),
        "log_rules_from": found.get(LOG_MONITORING_CONFIG_MAP),
        "heartbeat_file": found.get(HEARTBEAT_FILE),
        "heartbeat_timeout": found.get(HEARTBEAT_TIMEOUT),
        "startup_timeout": found.get(STARTUP_TIMEOUT),
    }


def group_of(ranks: object, template: Json, restart_policy: str = "") -> Group:
    """The pods of a template; ``template`` is a ``PodTemplateSpec``."""
    spec = template.get("spec") or {}
    kept = ("nodeSelector", "affinity", "tolerations")
    pods: Json = {key: spec[key] for key in kept if spec.get(key)}
    pods["containers"] = [
        {"resources": container.get("resources") or {}} for container in _containers(spec)
    ]
    return Group(
        ranks=ranks if isinstance(ranks, int) else 1,
        pods=pods,
        grace=timedelta(seconds=spec.get("terminationGracePeriodSeconds") or _GRACE_S),
        restart_policy=restart_policy,
    )


def pod_state(pod: Json, member: PodRank) -> PodState:
    """The state of a pod; ``pod`` is the object as the API server gives it."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    owners: Sequence[Json] = metadata.get("ownerReferences") or ()
    phase = status.get("phase", "")
    exit_ = earliest_exit(status, member.container, has_ended=phase == PodPhase.FAILED)
    return PodState(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        owner=member.owner or next((str(o["uid"]) for o in owners if o.get("controller")), ""),
        member=member,
        node=spec.get("nodeName") or "",
        container=member.container or main_container(pod),
        phase=phase,
        created_at=parse_time(metadata.get("creationTimestamp")) or EPOCH,
        is_terminating=bool(metadata.get("deletionTimestamp")),
        resources=devices(spec),
        exit=exit_,
        evicted=_evicted(metadata, status, exit_),
    )


def devices(pods: Json) -> dict[str, int]:
    """What a pod with this ``spec`` takes of resources that nodes have few of, such as GPUs."""
    total: dict[str, int] = {}
    for container in _containers(pods):
        resources = container.get("resources") or {}
        wanted = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
        for name, amount in wanted.items():
            if "/" in name and str(amount).isdecimal():
                total[name] = total.get(name, 0) + int(amount)
    return total


def _controller(metadata: Json) -> JobOwner | None:
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller") and owner.get("kind") not in _PASSIVE:
            return JobOwner(kind=owner["kind"], name=owner["name"], uid=owner["uid"])
    return None


def _containers(spec: Json) -> Sequence[Json]:
    return spec.get("containers") or ()


def _evicted(metadata: Json, status: Json, exit_: Exit | None) -> str:
    for one in status.get("conditions") or ():
        if one.get("type") == _DISRUPTED and one.get("status") == "True":
            reason = str(one.get("reason", ""))
            return "" if reason == _TOO_MUCH else reason
    gone_at = parse_time(metadata.get("deletionTimestamp"))
    if gone_at is None or (exit_ is not None and _is_older(exit_, gone_at, metadata)):
        return ""
    return "Deleted"


def _is_older(exit_: Exit, gone_at: datetime, metadata: Json) -> bool:
    """Whether a container ended before its pod was deleted, and not by that.

    Times are in whole seconds; within one, the signals of a deletion tell.
    """
    requested_at = gone_at - timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0)
    if exit_.at is None or exit_.at < requested_at:
        return True
    return exit_.at == requested_at and exit_.code not in _ENDED
