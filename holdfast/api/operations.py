"""Table of the supported operations."""

from collections.abc import Callable, Mapping
from typing import Final

from holdfast.api.call import Call
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
}
"""``operation -> function``; ``identity.REQUIRED_ROLE`` has the role that each needs."""
