"""SageMaker's enums for clusters, spelled as in its API."""

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
    "ScheduledUpdateConfig",
)
"""Settings of an instance group that ``UpdateCluster`` accepts beside its name and size;
``DescribeCluster`` returns them unchanged."""

NODE_SETTINGS: Final[tuple[str, ...]] = (
    "LifeCycleConfig",
    "ThreadsPerCore",
    "InstanceStorageConfigs",
    "OverrideVpcConfig",
)
"""Settings of an instance group that ``DescribeClusterNode`` returns for its nodes."""


class InstanceStatus(StrEnum):
    """SageMaker's ``ClusterInstanceStatus``."""

    RUNNING = "Running"
    PENDING = "Pending"
    """It accepts no jobs: it joins, reboots, or is being replaced."""
    CHECKING = "DeepHealthCheckInProgress"
    FAILURE = "Failure"
    """It will never accept jobs; the message has the reason."""
    SHUTTING_DOWN = "ShuttingDown"
    SYSTEM_UPDATING = "SystemUpdating"
    """It waits for new software or is being updated."""


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
    """Some of its nodes do not run although no change was requested."""
    SYSTEM_UPDATING = "SystemUpdating"
    DELETING = "Deleting"


class AutoScalingStatus(StrEnum):
    """SageMaker's ``ClusterAutoScalingStatus``."""

    IN_SERVICE = "InService"
    FAILED = "Failed"
    CREATING = "Creating"
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
