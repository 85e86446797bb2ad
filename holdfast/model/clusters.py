"""Desired state of clusters, and the machines and nodes that they consist of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from holdfast.model.deployments import Deployment, Patching, PatchingStrategy
from holdfast.model.node_settings import KubernetesConfig, NodeSettings
from holdfast.model.pod_demand import NodeShape
from holdfast.model.sagemaker import (
    ClusterStatus,
    EventLevel,
    InstanceStatus,
    ResourceType,
    UpdateStatus,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleScripts:
    """Scripts that run on a new machine before it may join; not again after a reboot."""

    source: str
    """Directory, ``file://...`` or ``s3://...``."""

    on_create: str
    """Path of the script to run, relative to ``source``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineGroup:
    """Specification of the machines of one instance group."""

    cluster: str
    name: str
    uid: str = ""
    """``DesiredCluster.uid`` of its cluster."""

    instance_type: str = ""
    """SageMaker's instance type, e.g. ``ml.p5.48xlarge``; empty if it is not fixed."""

    image: str = ""
    """Image that new machines boot, e.g. ``ami-0123456789abcdef0``; empty for the default."""

    previous_image: str = ""
    """Image that new machines boot instead of ``image`` since a rollback, until the next software
    update; empty if they boot ``image``."""

    revision: int = 0
    """Number of changes of the software of new machines, from 0."""

    scripts: LifecycleScripts | None = None
    repairs: bool = True
    """Whether faults are repaired automatically: ``NodeRecovery``."""

    mirrors_checkpoints: bool = False
    """Whether the checkpoints of jobs are copied to a second location: ``TieredStorageConfig``."""

    deep_checks: tuple[str, ...] = ()
    """Deep health checks of a machine that joins: ``OnStartDeepHealthChecks``."""

    kubernetes: KubernetesConfig = field(default_factory=KubernetesConfig)
    """Labels and taints of its Kubernetes nodes: ``KubernetesConfig``."""

    spec: Mapping[str, object] = field(default_factory=dict)
    """Complete request, as ``CreateCluster`` takes a group; ``VpcConfig`` is that of the cluster
    unless the group has its own."""

    @property
    def key(self) -> str:
        """Name that is unique across clusters: ``cluster/group``."""
        return f"{self.cluster}/{self.name}"


class MachineState(StrEnum):
    """State of a machine."""

    JOINING = "joining"
    """Ordered or booting; its scripts may be running."""

    RUNNING = "running"
    """It has booted, and its scripts have succeeded."""

    FAILED = "failed"
    """It will never run: its scripts failed. It stays until it is removed."""

    LEAVING = "leaving"
    """It is being removed or replaced; it no longer counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMachine:
    """One machine of a group."""

    id: str
    """Of the form ``i-0123456789abcdef0``."""

    name: str
    """Name of its node."""

    state: MachineState
    launched_at: datetime
    image: str = ""
    """Image that it has booted; empty if its provider has none."""

    addresses: tuple[str, ...] = ()
    """Its private host names and IP addresses, as far as they are known."""

    message: str = ""
    """Why it is in this state, if that needs an explanation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateSchedule:
    """Software updates at certain times: ``ScheduledUpdateConfig``."""

    expression: str
    """Cron expression of AWS; see ``kit.cron``."""

    deployment: Deployment = field(default_factory=Deployment)
    next_at: datetime | None = None
    """Next time of an update; None if there is no further one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftwareUpdate:
    """New software for the machines of a group, one batch at a time, with rollback."""

    status: UpdateStatus
    began_at: datetime
    """Start of the update: machines launched before it are replaced."""

    before: MachineGroup
    """Previous specification of the machines, for a rollback."""

    images: Mapping[str, int] = field(default_factory=dict)
    """Number of nodes by the image that they had before, for a rollback; without unknown ones."""

    batch: int
    """Number of machines updated at once."""

    rollback_batch: int
    """Number of machines rolled back at once."""

    bake: timedelta = timedelta(0)
    """Time for which each batch must run without failure before the next one starts."""

    alarms: tuple[str, ...] = ()
    """Names of the alarms that roll the update back."""

    turned_at: datetime | None = None
    """Start of the rollback: machines launched during the update are replaced again."""

    going: tuple[str, ...] = ()
    """Ids of the machines of the present batch."""

    batch_at: datetime | None = None
    """Time at which the present batch was selected."""

    baking_since: datetime | None = None
    patching: PatchingStrategy | None = None
    """How it waits for idle nodes; None for an update that does not wait."""

    idle_until: datetime | None = None
    """Time until which it waits for idle nodes."""

    all_idle: bool = False
    """Whether all nodes were idle at once, as ``WHEN_ALL_IDLE`` requires."""

    @property
    def is_patch(self) -> bool:
        """Whether it is about to install a patch on idle nodes; false during its rollback."""
        going_back = self.status is UpdateStatus.ROLLBACK_IN_PROGRESS
        return self.patching is not None and self.is_active and not going_back

    @property
    def is_active(self) -> bool:
        """Whether the update is not finished yet."""
        return self.status in (
            UpdateStatus.PENDING,
            UpdateStatus.IN_PROGRESS,
            UpdateStatus.ROLLBACK_IN_PROGRESS,
        )


class GroupStage(StrEnum):
    """Last state of a group that was sent to the machine provider."""

    NEW = "new"
    """The present specification was not sent yet."""

    MADE = "made"
    """Everything was sent, except the number of machines."""

    LEAVING = "leaving"
    """The deletion of the group was not sent yet."""

    DELETED = "deleted"
    """The deletion of the group was sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredGroup:
    """Desired state of an instance group."""

    made_of: MachineGroup
    target: int
    """Desired number of nodes."""

    minimum: int = 0
    """Sufficient number of nodes: ``MinInstanceCount``."""

    most: int | None = None
    """Requested ``InstanceCount`` of a group that scales itself; None if ``target`` is that."""

    scaled_at: datetime | None = None
    """Time at which it last grew by itself."""

    shape: NodeShape | None = None
    """What its nodes offer to pods, as of the last one that joined; None if none has."""

    stage: GroupStage = GroupStage.NEW
    leaving: tuple[str, ...] = ()
    """Ids of machines that people want removed, until they are gone."""

    before: "KnownGoodGroup | None" = None
    """State to roll back to if the last change fails; None for a new group."""

    failure: str = ""
    """Why the machine provider refuses the group; empty if it does not."""

    listing_failure: str = ""
    """Why it refuses to list the machines of the group, which is retried; empty if it does not."""

    update: SoftwareUpdate | None = None
    """Present or last software update."""

    schedule: UpdateSchedule | None = None
    """Schedule of its software updates; None without one."""

    patching: Patching | None = None
    """Automatic updates to newer images; None without them."""

    @property
    def name(self) -> str:
        """Name, unique in the cluster."""
        return self.made_of.name

    @property
    def is_going(self) -> bool:
        """Whether the whole group is being deleted."""
        return self.stage in (GroupStage.LEAVING, GroupStage.DELETED)

    @property
    def limit(self) -> int:
        """Maximum number of nodes."""
        return self.target if self.most is None else self.most


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownGoodGroup:
    """Last state in which a group was running as desired."""

    made_of: MachineGroup
    target: int
    minimum: int
    most: int | None = None
    schedule: UpdateSchedule | None = None
    patching: Patching | None = None

    def size(self, target: int) -> int:
        """Return the number of nodes to go back to from ``target``."""
        if self.most is None:
            return self.target
        return max(self.minimum, min(target, self.most))


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoScaling:
    """Whether groups scale themselves: ``AutoScaling``."""

    is_enabled: bool
    failure: str = ""
    """Why they cannot; empty if they can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredCluster:
    """Desired state of a cluster."""

    name: str
    uid: str
    """Unique among all present and past clusters, 12 lower-case letters and digits."""

    created_at: datetime
    status: ClusterStatus
    since: datetime
    """Time of the last requested change."""

    groups: tuple[DesiredGroup, ...] = ()
    repairs: bool = True
    """Whether faults of its nodes are repaired automatically: ``NodeRecovery``."""

    is_continuous: bool = False
    """Whether it is in service with fewer nodes than desired while more are provisioned:
    ``NodeProvisioningMode``."""

    autoscaling: AutoScaling | None = None
    """None if no request has set it."""

    failure: str = ""
    """Why its last change failed; empty if it did not."""

    requested: Mapping[str, object] = field(default_factory=dict)
    """Other parameters of the request, named as in ``CreateCluster``."""

    @property
    def is_autoscaled(self) -> bool:
        """Whether its groups scale themselves."""
        return self.autoscaling is not None and self.autoscaling.is_enabled


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A node of a cluster, or a place that waits for one."""

    logical_id: str
    """Identifier that exists before the machine does."""

    group: str
    added_at: datetime
    machine: GroupMachine | None = None
    status: InstanceStatus = InstanceStatus.PENDING
    message: str = ""
    status_since: datetime
    released: bool = False
    """Whether it has ever run."""

    settings: NodeSettings = field(default_factory=NodeSettings)
    """Requested labels and taints of its Kubernetes node."""

    idle_since: datetime | None = None
    """Time since which no pod runs on it; None if one does, or if its group has a fixed size."""

    is_retiring: bool = False
    """Whether its group is about to remove it, unless a pod needs it: it has ``SCALE_DOWN``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEvent:
    """Event of a cluster, worded like SageMaker's cluster events."""

    id: str
    at: datetime
    description: str
    level: EventLevel = EventLevel.INFO
    group: str = ""
    """Empty if the event concerns the whole cluster."""

    instance_id: str = ""
    """Empty if the event concerns no single machine."""

    logical_id: str = ""

    @property
    def resource(self) -> ResourceType:
        """Type of the resource that the event concerns."""
        if self.instance_id or self.logical_id:
            return ResourceType.INSTANCE
        return ResourceType.GROUP if self.group else ResourceType.CLUSTER


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHealth:
    """Health of a node as its controller reports it."""

    status: InstanceStatus
    message: str = ""
    is_busy: bool = False
    """Whether a job runs on it."""

    in_repair: bool = False
    """Whether it is cordoned for a repair or a check, or one is requested."""
