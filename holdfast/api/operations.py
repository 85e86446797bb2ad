"""Tables of the supported and of the unsupported operations on clusters."""

from collections.abc import Callable, Mapping
from typing import Final

from holdfast.api.call import Call
from holdfast.api.compute_quotas import (
    create_compute_quota,
    delete_compute_quota,
    describe_compute_quota,
    list_compute_quotas,
    update_compute_quota,
)
from holdfast.api.creation import create_cluster, delete_cluster, update_cluster
from holdfast.api.history import describe_cluster_event, list_cluster_events
from holdfast.api.reading import (
    describe_cluster,
    describe_cluster_node,
    list_cluster_nodes,
    list_clusters,
)
from holdfast.api.repairs import reboot_nodes, replace_nodes, start_health_check
from holdfast.api.sagemaker_model import Json
from holdfast.api.scaling import add_nodes, delete_nodes
from holdfast.api.scheduler_configs import (
    create_scheduler_config,
    delete_scheduler_config,
    describe_scheduler_config,
    list_scheduler_configs,
    update_scheduler_config,
)
from holdfast.api.software import update_software
from holdfast.api.tags import add_tags, delete_tags, list_tags

OPERATIONS: Final[Mapping[str, Callable[[Call], Json]]] = {
    "ListClusters": list_clusters,
    "DescribeCluster": describe_cluster,
    "ListClusterNodes": list_cluster_nodes,
    "DescribeClusterNode": describe_cluster_node,
    "ListClusterEvents": list_cluster_events,
    "DescribeClusterEvent": describe_cluster_event,
    "BatchRebootClusterNodes": reboot_nodes,
    "BatchReplaceClusterNodes": replace_nodes,
    "StartClusterHealthCheck": start_health_check,
    "CreateCluster": create_cluster,
    "UpdateCluster": update_cluster,
    "DeleteCluster": delete_cluster,
    "UpdateClusterSoftware": update_software,
    "BatchAddClusterNodes": add_nodes,
    "BatchDeleteClusterNodes": delete_nodes,
    "AddTags": add_tags,
    "ListTags": list_tags,
    "DeleteTags": delete_tags,
    "CreateClusterSchedulerConfig": create_scheduler_config,
    "DescribeClusterSchedulerConfig": describe_scheduler_config,
    "ListClusterSchedulerConfigs": list_scheduler_configs,
    "UpdateClusterSchedulerConfig": update_scheduler_config,
    "DeleteClusterSchedulerConfig": delete_scheduler_config,
    "CreateComputeQuota": create_compute_quota,
    "DescribeComputeQuota": describe_compute_quota,
    "ListComputeQuotas": list_compute_quotas,
    "UpdateComputeQuota": update_compute_quota,
    "DeleteComputeQuota": delete_compute_quota,
}
"""``operation -> function``; ``identity.REQUIRED_ROLE`` has the role that each needs."""

_NO_ATTACHMENT: Final = (
    "devices belong to the owner of the machines; attach them with EC2, or in the launch template "
    "of the type"
)
_NO_EXTENSION: Final = "extensions are add-ons of AWS; install charts with Helm"
_NO_MOVE: Final = (
    "a node keeps its instance group; remove it with BatchDeleteClusterNodes, and add one to the "
    "other group with BatchAddClusterNodes"
)
_NO_OPERATION: Final = "changes have no operation ID; use ListClusterEvents"

UNSUPPORTED_OPERATIONS: Final[Mapping[str, str]] = {
    "AttachClusterNodeNetworkInterface": _NO_ATTACHMENT,
    "AttachClusterNodeVolume": _NO_ATTACHMENT,
    "CreateClusterExtension": _NO_EXTENSION,
    "DeleteClusterExtension": _NO_EXTENSION,
    "DescribeClusterExtension": _NO_EXTENSION,
    "DescribeClusterOperation": _NO_OPERATION,
    "DetachClusterNodeVolume": _NO_ATTACHMENT,
    "ListClusterExtensionVersions": _NO_EXTENSION,
    "ListClusterExtensions": _NO_EXTENSION,
    "ListClusterOperations": _NO_OPERATION,
    "MoveClusterNodes": _NO_MOVE,
    "UpdateClusterExtension": _NO_EXTENSION,
}
"""``operation -> why it is refused, and what to use``, of SageMaker's operations on clusters."""
