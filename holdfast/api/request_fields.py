"""Request fields of the supported operations: supported, ignored or refused.

Requests are checked against this table before an operation runs, and the reference page is
generated from it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from holdfast.api.field_tables import (
    Fields,
    RequestField,
    Support,
    below,
    ignored,
    refused,
    supported,
)
from holdfast.api.policy_fields import POLICY_FIELDS
from holdfast.api.sagemaker_model import Json

_ON_EC2: Final = "On EC2. Elsewhere it has no effect and is returned."
_ON_KUBERNETES: Final = "On Kubernetes. Refused on Slurm and on one machine."
_ON_EC2_NODES: Final = "On Kubernetes with EC2. Refused elsewhere unless `Mode` is `Disable`."
_ON_EC2_NODES_ONLY: Final = "On Kubernetes with EC2. Refused elsewhere."
_ON_NEW_MACHINES: Final = (
    "On one machine and on EC2. Existing nodes of Kubernetes and Slurm run no scripts."
)
_BY_POLICY: Final = (
    "On one machine. On Kubernetes and Slurm, the policy of the controller applies to all nodes."
)
_MIRRORED: Final = (
    "On one machine, with `checkpoint_mirror` in the configuration of the server, to which "
    "checkpoints of jobs are copied. Refused on Kubernetes and on Slurm."
)
_NO_MOUNT: Final = "Mount the file system in a lifecycle script. Refused on EC2."
_NO_ROLE: Final = "Machines on EC2 get their role from `ec2.instance_profile`."
_NO_RELEASE: Final = "it names images of SageMaker; set ImageId"

_PAGES: Final = supported("MaxResults", "NextToken", "SortBy", "SortOrder")
_CREATED: Final = supported("CreationTimeAfter", "CreationTimeBefore")
_VPC: Final = supported("SecurityGroupIds", "Subnets", note=_ON_EC2)
_NODES: Final = supported("ClusterName", "NodeIds", "NodeLogicalIds")

_DEPLOYMENT: Final = {
    **supported("RollingUpdatePolicy", "WaitIntervalInSeconds"),
    **supported("RollingUpdatePolicy.MaximumBatchSize", note="Default: all nodes of the group."),
    **supported(
        "RollingUpdatePolicy.RollbackMaximumBatchSize", note="Default: `MaximumBatchSize`."
    ),
    **supported(
        *(
            f"RollingUpdatePolicy.{size}.{name}"
            for size in ("MaximumBatchSize", "RollbackMaximumBatchSize")
            for name in ("Type", "Value")
        )
    ),
    **supported(
        "AutoRollbackConfiguration",
        "AutoRollbackConfiguration.AlarmName",
        note='Requires `alarms = "cloudwatch"` in the configuration of the server.',
    ),
}

_KUBERNETES: Final = {
    "Labels": RequestField(Support.SUPPORTED, _ON_KUBERNETES, is_map=True),
    **supported("Taints", "Taints.Key", "Taints.Value", "Taints.Effect", note=_ON_KUBERNETES),
}

_GROUP: Final = {
    **supported("InstanceGroupName"),
    **supported("InstanceCount", note="With `AutoScaling`, the maximum number of nodes."),
    **supported(
        "MinInstanceCount",
        note="Sufficient number of nodes of a cluster that is `Continuous`; with `AutoScaling`, "
        "also the minimum number.",
    ),
    **supported(
        "InstanceType",
        note="`UpdateCluster` cannot change it. Existing nodes keep theirs.",
    ),
    **supported(
        "InstanceRequirements",
        "InstanceRequirements.InstanceTypes",
        note="Refused on EC2, where a group has one `InstanceType`.",
    ),
    **supported(
        "LifeCycleConfig",
        "LifeCycleConfig.SourceS3Uri",
        "LifeCycleConfig.OnCreate",
        note=_ON_NEW_MACHINES,
    ),
    **refused(
        "LifeCycleConfig.OnInitComplete", "OnCreate is the only script; run the other from it"
    ),
    **ignored("ExecutionRole", _NO_ROLE),
    **supported("ThreadsPerCore", "InstanceStorageConfigs", note=_ON_EC2),
    **supported(
        "InstanceStorageConfigs.EbsVolumeConfig",
        "InstanceStorageConfigs.EbsVolumeConfig.VolumeSizeInGB",
        "InstanceStorageConfigs.EbsVolumeConfig.VolumeKmsKeyId",
        note=_ON_EC2,
    ),
    **ignored(
        "InstanceStorageConfigs.EbsVolumeConfig.RootVolume",
        "Set the size of the root volume in the launch template of the type. Refused on EC2 if it "
        "is true.",
    ),
    **ignored("InstanceStorageConfigs.FsxLustreConfig", _NO_MOUNT),
    **ignored("InstanceStorageConfigs.FsxOpenZfsConfig", _NO_MOUNT),
    **supported("OnStartDeepHealthChecks", note=_BY_POLICY),
    **refused(
        "TrainingPlanArn",
        "training plans reserve capacity of SageMaker; on EC2, name a capacity reservation in the "
        "launch template of the type",
    ),
    **supported("OverrideVpcConfig", note=_ON_EC2),
    **below("OverrideVpcConfig", _VPC),
    **supported(
        "ScheduledUpdateConfig",
        "ScheduledUpdateConfig.DeploymentConfig",
        note="Runs `UpdateClusterSoftware` for the group with its present image.",
    ),
    **supported(
        "ScheduledUpdateConfig.ScheduleExpression",
        note="`cron(...)` in UTC; a run that cannot start within an hour is skipped.",
    ),
    **below("ScheduledUpdateConfig.DeploymentConfig", _DEPLOYMENT),
    **supported("ImageId", note=_ON_EC2),
    **supported(
        "AutoPatchConfig",
        "AutoPatchConfig.PatchSchedule",
        "AutoPatchConfig.PatchSchedule.NextPatchDate",
        "AutoPatchConfig.DeploymentConfig",
        "AutoPatchConfig.IdleWaitWindowInSeconds",
        note=_ON_EC2_NODES_ONLY,
    ),
    **supported(
        "AutoPatchConfig.PatchingStrategy",
        note="`WhenIdle` and `WhenAllIdle`; `DrainFirst` is refused.",
    ),
    **refused(
        "AutoPatchConfig.DrainPolicy",
        "the policy of the controller drains nodes; omit it",
    ),
    **below("AutoPatchConfig.DeploymentConfig", _DEPLOYMENT),
    **refused("ImageReleaseVersion", _NO_RELEASE),
    **supported("KubernetesConfig", note=_ON_KUBERNETES),
    **below("KubernetesConfig", _KUBERNETES),
    **supported("SlurmConfig"),
    **supported(
        "SlurmConfig.NodeType", note="`BatchDeleteClusterNodes` refuses to delete a `Controller`."
    ),
    **ignored("SlurmConfig.PartitionNames", "`slurm.conf` defines the partitions."),
    **supported("CapacityRequirements", "CapacityRequirements.Spot", note=_ON_EC2),
    **ignored("CapacityRequirements.OnDemand", "It is the default."),
    **ignored(
        "NetworkInterface", "The launch template of the type defines the network interfaces."
    ),
}

_CLUSTER: Final = {
    **supported("ClusterName", "InstanceGroups"),
    **below("InstanceGroups", _GROUP),
    **refused("RestrictedInstanceGroups", "only SageMaker runs them; use InstanceGroups"),
    **refused("RestrictedInstanceGroupsConfig", "only SageMaker has such groups; omit it"),
    **ignored("Orchestrator", "`--platform` of the server selects Kubernetes or Slurm."),
    **supported("NodeRecovery", note=_BY_POLICY),
    **supported("TieredStorageConfig", note=_MIRRORED),
    **supported("TieredStorageConfig.Mode"),
    **ignored(
        "TieredStorageConfig.InstanceMemoryAllocationPercentage",
        "Copies are on storage; no memory of nodes is reserved.",
    ),
    **supported("NodeProvisioningMode", note="A cluster stays `Continuous`."),
    **ignored("ClusterRole", _NO_ROLE),
    **supported("AutoScaling", "AutoScaling.Mode", note=_ON_EC2_NODES),
    **ignored(
        "AutoScaling.AutoScalerType",
        "Holdfast itself scales each group between `MinInstanceCount` and `InstanceCount`.",
    ),
}

REQUEST_FIELDS: Final[Mapping[str, Fields]] = {
    "ListClusters": {
        **_PAGES,
        **_CREATED,
        **supported("NameContains"),
        **refused("TrainingPlanArn", "no cluster has a training plan; omit it"),
    },
    "DescribeCluster": supported("ClusterName"),
    "ListClusterNodes": {
        **_PAGES,
        **_CREATED,
        **supported("ClusterName", "InstanceGroupNameContains", "IncludeNodeLogicalIds"),
    },
    "DescribeClusterNode": supported("ClusterName", "NodeId", "NodeLogicalId"),
    "ListClusterEvents": {
        **_PAGES,
        **supported("ClusterName", "InstanceGroupName", "NodeId", "ResourceType"),
        **supported("EventTimeAfter", "EventTimeBefore"),
        **refused(
            "OperationId", "changes have no operation ID; select events by time, group or node"
        ),
    },
    "DescribeClusterEvent": supported("ClusterName", "EventId"),
    "BatchRebootClusterNodes": _NODES,
    "BatchReplaceClusterNodes": _NODES,
    "StartClusterHealthCheck": {
        **supported("ClusterName", "DeepHealthCheckConfigurations"),
        **below(
            "DeepHealthCheckConfigurations",
            supported("InstanceGroupName", "InstanceIds", "DeepHealthChecks"),
        ),
    },
    "CreateCluster": {
        **_CLUSTER,
        **supported("VpcConfig", note=_ON_EC2),
        **below("VpcConfig", _VPC),
        **supported("Tags", "Tags.Key", "Tags.Value"),
    },
    "UpdateCluster": {**_CLUSTER, **supported("InstanceGroupsToDelete")},
    "DeleteCluster": supported("ClusterName"),
    "UpdateClusterSoftware": {
        **supported("ClusterName", "InstanceGroups", "InstanceGroups.InstanceGroupName"),
        **refused("InstanceGroups.ImageReleaseVersion", _NO_RELEASE),
        **supported("DeploymentConfig"),
        **below("DeploymentConfig", _DEPLOYMENT),
        **supported("ImageId", note=_ON_EC2),
    },
    "BatchAddClusterNodes": {
        **supported("ClusterName", "NodesToAdd"),
        **supported("ClientToken", note="Remembered for 8 hours."),
        **below(
            "NodesToAdd", supported("InstanceGroupName", "IncrementTargetCountBy", "InstanceTypes")
        ),
        **refused(
            "NodesToAdd.AvailabilityZones", "the subnets of the group select the zones; omit it"
        ),
    },
    "BatchDeleteClusterNodes": _NODES,
    "AddTags": supported("ResourceArn", "Tags", "Tags.Key", "Tags.Value"),
    "ListTags": supported("ResourceArn", "MaxResults", "NextToken"),
    "DeleteTags": supported("ResourceArn", "TagKeys"),
    **POLICY_FIELDS,
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
