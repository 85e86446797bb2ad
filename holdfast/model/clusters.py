"""Clusters that people ask for, and what they are made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from holdfast.model.sagemaker import (
    ClusterStatus,
    EventLevel,
    InstanceStatus,
    ResourceType,
    UpdateStatus,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleScripts:
    """What is run on a new machine before it may join; never again after a reboot."""

    source: str
    """A directory, ``file://...`` or ``s3://...``."""

    on_create: str
    """The script to run, a path within ``source``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineGroup:
    """What the machines of one instance group are made of, and how they are looked after."""

    cluster: str
    name: str
    uid: str = ""
    """That of its cluster: see ``DesiredCluster.uid``."""

    instance_type: str = ""
    """As SageMaker calls it, e.g. ``ml.p5.48xlarge``; empty if it is not fixed."""

    image: str = ""
    """The image that new machines boot, e.g. ``ami-0123456789abcdef0``; empty for the default."""

    revision: int = 0
    """Counts what the software of new machines was set to, from 0."""

    scripts: LifecycleScripts | None = None
    repairs: bool = True
    """Whether faults are repaired unasked: ``NodeRecovery``."""

    deep_checks: tuple[str, ...] = ()
    """The deep health checks of a machine that joins: ``OnStartDeepHealthChecks``."""

    spec: Mapping[str, object] = field(default_factory=dict)
    """All that was asked for, as ``CreateCluster`` takes a group; ``VpcConfig`` is that of the
    cluster unless the group has one of its own."""

    @property
    def key(self) -> str:
        """Names the group among those of all clusters: ``cluster/group``."""
        return f"{self.cluster}/{self.name}"


class MachineState(StrEnum):
    """Where a machine stands."""

    JOINING = "joining"
    """Ordered or booting; its scripts may be running."""

    RUNNING = "running"
    """It has booted, and its scripts have succeeded."""

    FAILED = "failed"
    """It will never run: its scripts have failed. It stays until it is removed."""

    LEAVING = "leaving"
    """It is being removed, or another one takes its place; it is not counted any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMachine:
    """One machine of a group."""

    id: str
    """Of the form ``i-0123456789abcdef0``."""

    name: str
    """Of its node."""

    state: MachineState
    launched_at: datetime
    message: str = ""
    """Why it is in this state, where that needs words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftwareUpdate:
    """New software for the machines of a group, a batch at a time, and the way back."""

    status: UpdateStatus
    began_at: datetime
    """Machines from before get other ones in their place."""

    before: MachineGroup
    """What the machines were made of, for the way back."""

    batch: int
    """How many machines at once."""

    rollback_batch: int
    """How many at once on the way back."""

    bake: timedelta = timedelta(0)
    """How long each batch has to run well before the next one begins."""

    alarms: tuple[str, ...] = ()
    """Names of those that end the update when they go off."""

    turned_at: datetime | None = None
    """When the way back began: machines from between get other ones in their place again."""

    going: tuple[str, ...] = ()
    """Ids of the machines of the present batch."""

    batch_at: datetime | None = None
    """When the present batch was chosen."""

    baking_since: datetime | None = None

    @property
    def is_active(self) -> bool:
        """Whether something is still to be done for it."""
        return self.status in (
            UpdateStatus.PENDING,
            UpdateStatus.IN_PROGRESS,
            UpdateStatus.ROLLBACK_IN_PROGRESS,
        )


class GroupStage(StrEnum):
    """What the owner of the machines was told about a group last."""

    NEW = "new"
    """Not what its machines are to be made of now."""

    MADE = "made"
    """All there is to be told, but for the number of its machines."""

    LEAVING = "leaving"
    """Not yet that the group is to go."""

    GONE = "gone"
    """That the group is to go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredGroup:
    """An instance group that somebody asked for."""

    made_of: MachineGroup
    target: int
    """How many nodes it is to have."""

    minimum: int = 0
    """How many are enough: ``MinInstanceCount``."""

    stage: GroupStage = GroupStage.NEW
    leaving: tuple[str, ...] = ()
    """Ids of machines that people want to go, until they are gone."""

    before: "Proven | None" = None
    """What to go back to if what was asked for last fails; None for a group that is new."""

    failure: str = ""
    """Why the owner of the machines refuses what is asked of it; empty if it does not."""

    update: SoftwareUpdate | None = None
    """Of its software: the present one, or the last one."""

    @property
    def name(self) -> str:
        """Its own name, which no other group of the cluster has."""
        return self.made_of.name

    @property
    def is_going(self) -> bool:
        """Whether the whole group is to go."""
        return self.stage in (GroupStage.LEAVING, GroupStage.GONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """A group as it once ran."""

    made_of: MachineGroup
    target: int
    minimum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredCluster:
    """A cluster that somebody asked for."""

    name: str
    uid: str = ""
    """Unique among all clusters that there ever were, 12 lower-case letters and digits; empty for
    a cluster of an earlier release."""

    created_at: datetime
    status: ClusterStatus
    since: datetime
    """When what is asked for now was asked for."""

    groups: tuple[DesiredGroup, ...] = ()
    repairs: bool = True
    """Whether faults of its nodes are repaired unasked: ``NodeRecovery``."""

    is_continuous: bool = False
    """Whether it is in service with fewer nodes than asked for, while the others are tried for:
    ``NodeProvisioningMode``."""

    failure: str = ""
    """Why the last change of it failed; empty if it did not."""

    requested: Mapping[str, object] = field(default_factory=dict)
    """What else was asked for, in the words of ``CreateCluster``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A node of such a cluster, or a place for one."""

    logical_id: str
    """Names it also before there is a machine."""

    group: str
    added_at: datetime
    machine: GroupMachine | None = None
    status: InstanceStatus = InstanceStatus.PENDING
    message: str = ""
    status_since: datetime
    released: bool = False
    """Whether it has run at some time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEvent:
    """Something that happened to such a cluster, in the words of SageMaker's cluster events."""

    id: str
    at: datetime
    description: str
    level: EventLevel = EventLevel.INFO
    group: str = ""
    """Empty if it concerns the cluster as a whole."""

    instance_id: str = ""
    """Empty if it concerns no single machine."""

    logical_id: str = ""

    @property
    def resource(self) -> ResourceType:
        """What it happened to."""
        if self.instance_id or self.logical_id:
            return ResourceType.INSTANCE
        return ResourceType.GROUP if self.group else ResourceType.CLUSTER


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHealth:
    """What whoever looks after a node says about it."""

    status: InstanceStatus
    message: str = ""
    is_busy: bool = False
    """Whether a job runs on it."""
