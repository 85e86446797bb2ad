"""Request fields of the supported operations: supported, ignored or refused.

Requests are checked against this table before an operation runs, and the reference page is
generated from it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from holdfast.api.sagemaker_model import Json


class Support(StrEnum):
    """How a request field is handled."""

    SUPPORTED = "supported"
    IGNORED = "ignored"
    """Accepted, and returned where the response has it; nothing depends on it."""
    REFUSED = "refused"
    """The request fails with ``ValidationException``."""


@dataclass(frozen=True, slots=True)
class RequestField:
    """A request field, with the fields below it unless they have rows of their own."""

    support: Support
    note: str = ""
    """Limits of the support, or the reason why there is none and what to use."""

    is_map: bool = False
    """Whether its members are keys that people choose, which have no rows."""

    allowed: Mapping[str, Any] | None = None
    """Value of a refused field that is accepted, because it requests nothing."""


Fields = Mapping[str, RequestField]
"""``path of a field -> field``; the path of a list is also that of its items."""


def _supported(*paths: str, note: str = "") -> dict[str, RequestField]:
    return {path: RequestField(Support.SUPPORTED, note) for path in paths}


def _ignored(path: str, note: str) -> dict[str, RequestField]:
    return {path: RequestField(Support.IGNORED, note)}


def _refused(
    path: str, note: str, allowed: Mapping[str, Any] | None = None
) -> dict[str, RequestField]:
    return {path: RequestField(Support.REFUSED, note, allowed=allowed)}


def _below(path: str, fields: Fields) -> dict[str, RequestField]:
    return {f"{path}.{name}": field for name, field in fields.items()}


_DISABLED: Final = {"Mode": "Disable"}
_ON_EC2: Final = "On EC2. Elsewhere it has no effect and is returned."
_ON_KUBERNETES: Final = "On Kubernetes. Refused on Slurm and on one machine."
_ON_NEW_MACHINES: Final = (
    "On one machine and on EC2. Existing nodes of Kubernetes and Slurm run no scripts."
)
_BY_POLICY: Final = (
    "On one machine. On Kubernetes and Slurm, the policy of the controller applies to all nodes."
)
_NO_MOUNT: Final = "Mount the file system in a lifecycle script. Refused on EC2."
_NO_ROLE: Final = "Machines on EC2 get their role from `ec2.instance_profile`."
_NO_RELEASE: Final = "it names images of SageMaker; set ImageId"

_PAGES: Final = _supported("MaxResults", "NextToken", "SortBy", "SortOrder")
_CREATED: Final = _supported("CreationTimeAfter", "CreationTimeBefore")
_VPC: Final = _supported("SecurityGroupIds", "Subnets", note=_ON_EC2)
_NODES: Final = _supported("ClusterName", "NodeIds", "NodeLogicalIds")

_DEPLOYMENT: Final = {
    **_supported("RollingUpdatePolicy", "WaitIntervalInSeconds"),
    **_supported("RollingUpdatePolicy.MaximumBatchSize", note="Default: all nodes of the group."),
    **_supported(
        "RollingUpdatePolicy.RollbackMaximumBatchSize", note="Default: `MaximumBatchSize`."
    ),
    **_supported(
        *(
            f"RollingUpdatePolicy.{size}.{name}"
            for size in ("MaximumBatchSize", "RollbackMaximumBatchSize")
            for name in ("Type", "Value")
        )
    ),
    **_supported(
        "AutoRollbackConfiguration",
        "AutoRollbackConfiguration.AlarmName",
        note='Requires `alarms = "cloudwatch"` in the configuration of the server.',
    ),
}

_KUBERNETES: Final = {
    "Labels": RequestField(Support.SUPPORTED, _ON_KUBERNETES, is_map=True),
    **_supported("Taints", "Taints.Key", "Taints.Value", "Taints.Effect", note=_ON_KUBERNETES),
}

_GROUP: Final = {
    **_supported("InstanceGroupName", "InstanceCount"),
    **_supported(
        "MinInstanceCount", note="Sufficient number of nodes of a cluster that is `Continuous`."
    ),
    **_supported(
        "InstanceType",
        note="`UpdateCluster` cannot change it. Existing nodes keep theirs.",
    ),
    **_supported(
        "InstanceRequirements",
        "InstanceRequirements.InstanceTypes",
        note="Refused on EC2, where a group has one `InstanceType`.",
    ),
    **_supported(
        "LifeCycleConfig",
        "LifeCycleConfig.SourceS3Uri",
        "LifeCycleConfig.OnCreate",
        note=_ON_NEW_MACHINES,
    ),
    **_refused(
        "LifeCycleConfig.OnInitComplete", "OnCreate is the only script; run the other from it"
    ),
    **_ignored("ExecutionRole", _NO_ROLE),
    **_supported("ThreadsPerCore", "InstanceStorageConfigs", note=_ON_EC2),
    **_supported(
        "InstanceStorageConfigs.EbsVolumeConfig",
        "InstanceStorageConfigs.EbsVolumeConfig.VolumeSizeInGB",
        "InstanceStorageConfigs.EbsVolumeConfig.VolumeKmsKeyId",
        note=_ON_EC2,
    ),
    **_ignored(
        "InstanceStorageConfigs.EbsVolumeConfig.RootVolume",
        "Set the size of the root volume in the launch template of the type. Refused on EC2 if it "
        "is true.",
    ),
    **_ignored("InstanceStorageConfigs.FsxLustreConfig", _NO_MOUNT),
    **_ignored("InstanceStorageConfigs.FsxOpenZfsConfig", _NO_MOUNT),
    **_supported("OnStartDeepHealthChecks", note=_BY_POLICY),
    **_refused(
        "TrainingPlanArn",
        "training plans reserve capacity of SageMaker; on EC2, name a capacity reservation in the "
        "launch template of the type",
    ),
    **_supported("OverrideVpcConfig", note=_ON_EC2),
    **_below("OverrideVpcConfig", _VPC),
    **_supported(
        "ScheduledUpdateConfig",
        "ScheduledUpdateConfig.DeploymentConfig",
        note="Runs `UpdateClusterSoftware` for the group with its present image.",
    ),
    **_supported(
        "ScheduledUpdateConfig.ScheduleExpression",
        note="`cron(...)` in UTC; a run that cannot start within an hour is skipped.",
    ),
    **_below("ScheduledUpdateConfig.DeploymentConfig", _DEPLOYMENT),
    **_supported("ImageId", note=_ON_EC2),
    **_refused(
        "AutoPatchConfig",
        "it installs the security patches that AWS releases for images of SageMaker, and nobody "
        "announces such patches for your images; set ScheduledUpdateConfig",
    ),
    **_refused("ImageReleaseVersion", _NO_RELEASE),
    **_supported("KubernetesConfig", note=_ON_KUBERNETES),
    **_below("KubernetesConfig", _KUBERNETES),
    **_supported("SlurmConfig"),
    **_supported(
        "SlurmConfig.NodeType", note="`BatchDeleteClusterNodes` refuses to delete a `Controller`."
    ),
    **_ignored("SlurmConfig.PartitionNames", "`slurm.conf` defines the partitions."),
    **_supported("CapacityRequirements", "CapacityRequirements.Spot", note=_ON_EC2),
    **_ignored("CapacityRequirements.OnDemand", "It is the default."),
    **_ignored(
        "NetworkInterface", "The launch template of the type defines the network interfaces."
    ),
}

_CLUSTER: Final = {
    **_supported("ClusterName", "InstanceGroups"),
    **_below("InstanceGroups", _GROUP),
    **_refused("RestrictedInstanceGroups", "only SageMaker runs them; use InstanceGroups"),
    **_refused("RestrictedInstanceGroupsConfig", "only SageMaker has such groups; omit it"),
    **_ignored("Orchestrator", "`--platform` of the server selects Kubernetes or Slurm."),
    **_supported("NodeRecovery", note=_BY_POLICY),
    **_refused(
        "TieredStorageConfig",
        "checkpoints are kept where the job saves them; omit it, or set Mode to Disable",
        _DISABLED,
    ),
    **_supported("NodeProvisioningMode", note="A cluster stays `Continuous`."),
    **_ignored("ClusterRole", _NO_ROLE),
    **_refused(
        "AutoScaling",
        "groups have the requested size; change InstanceCount, and omit it or set Mode to Disable",
        _DISABLED,
    ),
}

REQUEST_FIELDS: Final[Mapping[str, Fields]] = {
    "ListClusters": {
        **_PAGES,
        **_CREATED,
        **_supported("NameContains"),
        **_refused("TrainingPlanArn", "no cluster has a training plan; omit it"),
    },
    "DescribeCluster": _supported("ClusterName"),
    "ListClusterNodes": {
        **_PAGES,
        **_CREATED,
        **_supported("ClusterName", "InstanceGroupNameContains", "IncludeNodeLogicalIds"),
    },
    "DescribeClusterNode": _supported("ClusterName", "NodeId", "NodeLogicalId"),
    "ListClusterEvents": {
        **_PAGES,
        **_supported("ClusterName", "InstanceGroupName", "NodeId", "ResourceType"),
        **_supported("EventTimeAfter", "EventTimeBefore"),
        **_refused(
            "OperationId", "changes have no operation ID; select events by time, group or node"
        ),
    },
    "DescribeClusterEvent": _supported("ClusterName", "EventId"),
    "BatchRebootClusterNodes": _NODES,
    "BatchReplaceClusterNodes": _NODES,
    "StartClusterHealthCheck": {
        **_supported("ClusterName", "DeepHealthCheckConfigurations"),
        **_below(
            "DeepHealthCheckConfigurations",
            _supported("InstanceGroupName", "InstanceIds", "DeepHealthChecks"),
        ),
    },
    "CreateCluster": {
        **_CLUSTER,
        **_supported("VpcConfig", note=_ON_EC2),
        **_below("VpcConfig", _VPC),
        **_supported("Tags", "Tags.Key", "Tags.Value"),
    },
    "UpdateCluster": {**_CLUSTER, **_supported("InstanceGroupsToDelete")},
    "DeleteCluster": _supported("ClusterName"),
    "UpdateClusterSoftware": {
        **_supported("ClusterName", "InstanceGroups", "InstanceGroups.InstanceGroupName"),
        **_refused("InstanceGroups.ImageReleaseVersion", _NO_RELEASE),
        **_supported("DeploymentConfig"),
        **_below("DeploymentConfig", _DEPLOYMENT),
        **_supported("ImageId", note=_ON_EC2),
    },
    "BatchAddClusterNodes": {
        **_supported("ClusterName", "NodesToAdd"),
        **_supported("ClientToken", note="Remembered for 8 hours."),
        **_below(
            "NodesToAdd", _supported("InstanceGroupName", "IncrementTargetCountBy", "InstanceTypes")
        ),
        **_refused(
            "NodesToAdd.AvailabilityZones", "the subnets of the group select the zones; omit it"
        ),
    },
    "BatchDeleteClusterNodes": _NODES,
    "AddTags": _supported("ResourceArn", "Tags", "Tags.Key", "Tags.Value"),
    "ListTags": _supported("ResourceArn", "MaxResults", "NextToken"),
    "DeleteTags": _supported("ResourceArn", "TagKeys"),
}
"""``operation -> its request fields``."""


def unsupported(operation: str, request: Json) -> Iterator[str]:
    """Problems of a valid request: its fields that are refused, or not in the table.

    Args:
        operation: name of a supported operation.
        request: request, valid by the model.

    """
    yield from _unsupported(REQUEST_FIELDS[operation], request, "", "")


def _unsupported(fields: Fields, value: Json, above: str, shown: str) -> Iterator[str]:
    for name, item in value.items():
        path = f"{above}{name}"
        field = fields.get(path)
        if field is None:
            yield f"{shown}{name} is not known to this release of Holdfast; omit it"
        elif field.support is Support.REFUSED:
            if item != field.allowed:
                yield f"{shown}{name} is not supported: {field.note}"
        elif field.support is Support.SUPPORTED and not field.is_map:
            yield from _below_supported(fields, item, path, f"{shown}{name}")


def _below_supported(fields: Fields, item: Any, path: str, shown: str) -> Iterator[str]:
    if isinstance(item, dict):
        yield from _unsupported(fields, item, f"{path}.", f"{shown}.")
    elif isinstance(item, list):
        for number, one in enumerate(item, 1):
            if isinstance(one, dict):
                label = one.get("InstanceGroupName", number)
                yield from _unsupported(fields, one, f"{path}.", f"{shown}: {label}: ")
