"""State of job objects and their pods: the fields that Holdfast reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, Protocol

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.client.values import EPOCH, parse_time
from holdfast.adapters.kubernetes.jobs.checkpoint_reports import CheckpointReport, checkpoint_report
from holdfast.adapters.kubernetes.jobs.containers import (
    Exit,
    earliest_exit,
    evicted_by,
    hostname_of,
    main_container,
)
from holdfast.model.jobs import Ending
from holdfast.model.names import (
    APP_MAX_RETRY_COUNT,
    FAULT_GRACE,
    HEARTBEAT_FILE,
    HEARTBEAT_TIMEOUT,
    JOB_RECORD,
    JOB_STATUS,
    KEEP_PODS,
    LOG_MONITORING,
    LOG_MONITORING_CONFIG_MAP,
    LOSS_ACTION,
    LOSS_TOLERANCE,
    LOSS_WINDOW,
    RECORD_OF,
    STARTUP_TIMEOUT,
    Labels,
    PodPhase,
)

QUEUE: Final = "kueue.x-k8s.io/queue-name"
"""Label of a job that Kueue suspends and admits."""

BY_NAME: Final = "*"
"""Stands for the UID of a pod's job if the pod has only the job's name."""

UNNUMBERED: Final = -1
"""Stands for the rank of a pod that its operator does not number."""

_PASSIVE: Final = ("CronJob", "Workflow")
"""Owner kinds that do not modify their jobs after creating them."""

_GRACE_S: Final = 30  # Kubernetes' default


class Named(Protocol):
    """Names of a kind of objects."""

    @property
    def kind(self) -> str:
        """Kind such as ``PyTorchJob``."""
        ...

    @property
    def api_version(self) -> str:
        """API version such as ``kubeflow.org/v1``."""
        ...

    @property
    def plural(self) -> str:
        """Name of the collection in API paths."""
        ...


class JobOwner(NamedTuple):
    """Object that created a job and starts and stops it."""

    kind: str
    name: str
    uid: str


class Group(NamedTuple):
    """Pods of a job that are created from one template."""

    ranks: int
    pods: Json
    """Scheduling fields of their ``spec``: selector, affinity, tolerations and the containers'
    resources."""

    grace: timedelta
    restart_policy: str = ""
    """Restart policy from the job's kind; empty if it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """State of a job object. Two are equal if all but their resource versions is equal."""

    kind: str
    api_version: str
    plural: str
    namespace: str
    name: str
    uid: str
    resource_version: str = field(compare=False)
    created_at: datetime
    started_at: datetime | None
    """Time since which its operator runs it without interruption."""

    is_suspended: bool
    is_stop_seen: bool
    """Whether its operator reports it as suspended."""

    is_leaving: bool
    """Whether it is being deleted."""

    ending: Ending | None
    groups: tuple[Group, ...]
    queue: str | None
    record: str | None
    """Value of the annotation, as for the fields below; None if absent."""

    status: str | None
    is_marked: bool
    """Whether it has, or had, a record of its own."""

    auto_resume: str | None
    max_retries: str | None
    max_app_retries: str | None
    log_rules: str | None
    log_rules_from: str | None
    heartbeat_file: str | None
    heartbeat_timeout: str | None
    startup_timeout: str | None
    loss_action: str | None
    loss_window: str | None
    loss_tolerance: str | None
    fault_grace: str | None
    keep_pods: str | None
    controller: JobOwner | None
    obstacle: str | None = None
    """Properties that it lacks to be restarted as a whole; None if it can be restarted."""

    body: str = ""
    """UID of the object that was created for it and owns its pods; empty if it owns them itself."""

    part: str = ""
    """Which pods belong to the current run, for operators that give each run a name."""

    is_restarting: bool = False
    """Whether its operator is about to restart it."""

    max_all_retries: int | None = None
    """See ``JobSpec.max_all_retries``."""

    completed: frozenset[int] = frozenset()
    """Ranks that succeeded; its operator never reruns them."""

    def is_other_than(self, before: "JobState") -> bool:
        """Return whether the state that decisions about a job rely on has changed."""
        return (
            self.uid != before.uid
            or self.is_leaving
            or self.auto_resume != before.auto_resume
            or self.record != before.record
            or self.is_suspended != before.is_suspended
        )

    @property
    def key(self) -> str:
        """Name of the job for people and records, such as ``pytorchjob/team-a/llama``."""
        return f"{self.kind.lower()}/{self.namespace}/{self.name}"

    @property
    def path(self) -> str:
        """API path of the object."""
        return f"/apis/{self.api_version}/namespaces/{self.namespace}/{self.plural}/{self.name}"

    @property
    def is_orphaned(self) -> bool:
        """Whether Holdfast suspended it and the record of that was removed."""
        is_managed = self.is_marked and self.record is None and self.queue is None
        return is_managed and self.is_suspended and self.ending is None

    def owns(self, pod: "PodState") -> bool:
        """Whether a pod with its name belongs to it, and not to an earlier job of that name."""
        is_named = pod.owner == BY_NAME and pod.created_at >= self.created_at
        return is_named or pod.owner == (self.body or self.uid)

    def with_body(self, body: "JobState") -> "JobState":
        """Return the job with the fields that only its body object has."""
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
        """Number of ranks of the job."""
        return sum(group.ranks for group in self.groups)


class PodRank(NamedTuple):
    """Job and rank of a pod."""

    job: str
    """Name of the job object, in the pod's namespace."""

    rank: int
    """Rank, or ``UNNUMBERED``."""

    container: str
    """Name of the container that trains; empty if all do."""

    owner: str = ""
    """UID of the job if a part of it created the pod, or ``BY_NAME``; else empty."""

    part: str = ""
    """See ``JobState.part``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodState:
    """State of a pod of a job."""

    namespace: str
    name: str
    uid: str
    owner: str
    """UID of its job, or of the object that created it if that is no job."""

    member: PodRank
    node: str
    """Name of its node; empty until it is scheduled."""

    hostname: str
    """Host name of its processes; empty if it uses that of its node."""

    container: str
    """Name of the container that trains, or most likely trains."""

    phase: str
    created_at: datetime
    is_terminating: bool
    grace_s: int | None
    """Grace period of its deletion in seconds; None before it is deleted."""

    resources: Mapping[str, int]
    """Number of devices that it uses, by resource name."""

    exit: Exit | None
    """Exit of the pod if it has ended, else of the last run of its container if it restarted."""

    evicted: str
    """Component that evicts it, if it has to leave and has not failed; else empty."""

    checkpoint_report: CheckpointReport
    """What its init container has reported about the checkpoints of the job."""

    @property
    def path(self) -> str:
        """API path of the pod."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    @property
    def has_ended(self) -> bool:
        """Whether no container of it will run any more."""
        return self.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)


def described(kind: Named, job: Json, labels: Labels) -> dict[str, Any]:
    """Return the fields of a ``JobState`` that have the same path in all kinds."""
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
    """Return the fields of a ``JobState`` that are annotations.

    Ignores the record of another job, from which this job was copied: a job is created before its
    UID is known, so nobody can create one with a record of its own.
    """
    found: Mapping[str, str] = job["metadata"].get("annotations") or {}
    uid = job["metadata"]["uid"]
    is_own = found.get(RECORD_OF) == uid
    return {
        "record": found.get(JOB_RECORD) if is_own else None,
        "status": found.get(JOB_STATUS) if is_own else None,
        "is_marked": is_own,
        "auto_resume": found.get(labels.enable_job_auto_resume),
        "max_retries": found.get(labels.job_max_retry_count),
        "max_app_retries": found.get(APP_MAX_RETRY_COUNT),
        "log_rules": found.get(LOG_MONITORING),
        "log_rules_from": found.get(LOG_MONITORING_CONFIG_MAP),
        "heartbeat_file": found.get(HEARTBEAT_FILE),
        "heartbeat_timeout": found.get(HEARTBEAT_TIMEOUT),
        "startup_timeout": found.get(STARTUP_TIMEOUT),
        "loss_action": found.get(LOSS_ACTION),
        "loss_window": found.get(LOSS_WINDOW),
        "loss_tolerance": found.get(LOSS_TOLERANCE),
        "fault_grace": found.get(FAULT_GRACE),
        "keep_pods": found.get(KEEP_PODS),
    }


def group_of(ranks: object, template: Json, restart_policy: str = "") -> Group:
    """Return the pods of a template; ``template`` is a ``PodTemplateSpec``."""
    spec = template.get("spec") or {}
    scheduling = ("nodeSelector", "affinity", "tolerations")
    pods: Json = {key: spec[key] for key in scheduling if spec.get(key)}
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
    """Return the state of a pod; ``pod`` is the object from the API server."""
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
        hostname=hostname_of(pod),
        container=member.container or main_container(pod),
        phase=phase,
        created_at=parse_time(metadata.get("creationTimestamp")) or EPOCH,
        is_terminating=bool(metadata.get("deletionTimestamp")),
        grace_s=metadata.get("deletionGracePeriodSeconds"),
        resources=devices(spec),
        exit=exit_,
        evicted=evicted_by(metadata, status, exit_),
        checkpoint_report=checkpoint_report(status),
    )


def devices(pods: Json) -> dict[str, int]:
    """Return the extended resources, such as GPUs, that a pod with this ``spec`` uses."""
    total: dict[str, int] = {}
    for container in _containers(pods):
        resources = container.get("resources") or {}
        amounts = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
        for name, amount in amounts.items():
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
