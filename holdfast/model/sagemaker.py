"""SageMaker's words for what becomes of clusters, as its API spells them."""

from enum import StrEnum
from typing import Final

GROUP_SETTINGS: Final[tuple[str, ...]] = (
    "InstanceType",
    "LifeCycleConfig",
    "ExecutionRole",
    "ThreadsPerCore",
    "InstanceStorageConfigs",
    "OnStartDeepHealthChecks",
    "OverrideVpcConfig",
    "SlurmConfig",
    "CapacityRequirements",
    "NetworkInterface",
)
"""What ``UpdateCluster`` takes of an instance group beside its name and size; it is told alike."""


class InstanceStatus(StrEnum):
    """SageMaker's ``ClusterInstanceStatus``."""

    RUNNING = "Running"
    PENDING = "Pending"
    """It takes no work: it joins, reboots, or is being replaced."""
    CHECKING = "DeepHealthCheckInProgress"
    FAILURE = "Failure"
    """It will never take work; the message says why."""
    SHUTTING_DOWN = "ShuttingDown"
    SYSTEM_UPDATING = "SystemUpdating"
    """It is to get new software, or is getting it."""


class ClusterStatus(StrEnum):
    """SageMaker's ``ClusterStatus``."""

    CREATING = "Creating"
    DELETING = "Deleting"
    FAILED = "Failed"
    IN_SERVICE = "InService"
    ROLLING_BACK = "RollingBack"
    SYSTEM_UPDATING = "SystemUpdating"
    UPDATING = "Updating"


class GroupStatus(StrEnum):
    """SageMaker's ``InstanceGroupStatus``."""

    IN_SERVICE = "InService"
    CREATING = "Creating"
    UPDATING = "Updating"
    FAILED = "Failed"
    DEGRADED = "Degraded"
    """Some of its nodes do not run, and nobody has asked for that."""
    SYSTEM_UPDATING = "SystemUpdating"
    DELETING = "Deleting"


class UpdateStatus(StrEnum):
    """SageMaker's ``SoftwareUpdateStatus``."""

    PENDING = "Pending"
    IN_PROGRESS = "InProgress"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    ROLLBACK_IN_PROGRESS = "RollbackInProgress"
    ROLLBACK_COMPLETE = "RollbackComplete"


class ResourceType(StrEnum):
    """SageMaker's ``ClusterEventResourceType``."""

    CLUSTER = "Cluster"
    GROUP = "InstanceGroup"
    INSTANCE = "Instance"


class EventLevel(StrEnum):
    """SageMaker's ``ClusterEventLevel``."""

    INFO = "Info"
    WARN = "Warn"
    ERROR = "Error"
