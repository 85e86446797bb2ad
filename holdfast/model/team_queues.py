"""Scheduler configurations and compute quotas of clusters, and the queues that follow from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

CPU: Final = "cpu"
"""Resource of CPUs; amounts are in thousandths."""

MEMORY: Final = "memory"
"""Resource of memory; amounts are in bytes."""


class PolicyStatus(StrEnum):
    """SageMaker's ``SchedulerResourceStatus``."""

    CREATING = "Creating"
    CREATE_FAILED = "CreateFailed"
    CREATED = "Created"
    UPDATING = "Updating"
    UPDATE_FAILED = "UpdateFailed"
    UPDATED = "Updated"
    DELETING = "Deleting"
    DELETE_FAILED = "DeleteFailed"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceAmount:
    """Amount of compute of one instance type: ``ComputeQuotaResourceConfig``."""

    instance_type: str
    """SageMaker's instance type, e.g. ``ml.p5.48xlarge``."""

    instances: int | None = None
    accelerators: int | None = None
    cpus: float | None = None
    memory_gib: float | None = None
    partition: str = ""
    """MIG profile, e.g. ``mig-1g.5gb``; empty for none."""

    partitions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeQuota:
    """Compute of a team: ``CreateComputeQuota``."""

    team: str
    amounts: tuple[InstanceAmount, ...] = ()
    weight: int = 0
    """``FairShareWeight``."""

    lends: bool = True
    """Whether other teams may use what is idle."""

    borrow_percent: int | None = None
    """Idle compute that the team may use, in percent of its own; None for none."""

    borrow_limits: tuple[InstanceAmount, ...] = ()
    """Limits of idle compute in place of ``borrow_percent``, by instance type."""

    preempts: bool = True
    """Whether its tasks preempt its own tasks of a lower priority."""

    is_enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Order and sharing of the tasks of a cluster: ``CreateClusterSchedulerConfig``."""

    priorities: Mapping[str, int] = field(default_factory=dict)
    """Weights by the name of the priority class."""

    fair_share: bool = True
    shares_idle: bool = False
    """Whether teams may borrow compute that no quota has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A stored scheduler configuration or compute quota."""

    id: str
    """Unique, 12 lower-case letters and digits."""

    name: str
    cluster: str
    """Name of its cluster."""

    cluster_id: str
    """Last part of the ARN of its cluster."""

    version: int = 1
    status: PolicyStatus = PolicyStatus.CREATING
    failure: str = ""
    """Why it could not be applied; empty if it could."""

    created_at: datetime
    created_by: str
    modified_at: datetime
    modified_by: str
    requested: Mapping[str, object] = field(default_factory=dict)
    """Members of the request that descriptions return."""

    scheduler: SchedulerConfig | None = None
    quota: ComputeQuota | None = None
    """One of both is set."""

    @property
    def is_going(self) -> bool:
        """Whether it is being deleted."""
        return self.status in (PolicyStatus.DELETING, PolicyStatus.DELETE_FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeType:
    """Nodes of one instance type."""

    label: str
    """Value of their label ``node.kubernetes.io/instance-type``."""

    nodes: int
    resources: Mapping[str, int]
    """Allocatable resources of one node, the largest, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorQuota:
    """Compute of one instance type in a queue."""

    instance_type: str
    label: str
    """See ``NodeType.label``."""

    nominal: Mapping[str, int]
    borrowing: Mapping[str, int] | None = None
    """Borrowing limits by resource; None for no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamQueue:
    """Queue of a team."""

    team: str
    flavors: tuple[FlavorQuota, ...]
    cohort: str
    """Name of the teams that it shares with; empty for none."""

    weight: int | None
    """Weight of its share; None for the default."""

    preempts: bool
    is_enabled: bool
