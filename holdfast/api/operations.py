"""Table of the supported operations."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Operation:
    """Function and required permission of an operation."""

    answer: Callable[[Call], Json]
    changes: bool = False
    """Whether the operation changes something, so that read-only keys are refused."""


OPERATIONS: Final[Mapping[str, Operation]] = {
    "ListClusters": Operation(list_clusters),
    "DescribeCluster": Operation(describe_cluster),
    "ListClusterNodes": Operation(list_cluster_nodes),
    "DescribeClusterNode": Operation(describe_cluster_node),
    "ListClusterEvents": Operation(list_cluster_events),
    "DescribeClusterEvent": Operation(describe_cluster_event),
    "BatchRebootClusterNodes": Operation(reboot_nodes, changes=True),
    "BatchReplaceClusterNodes": Operation(replace_nodes, changes=True),
    "StartClusterHealthCheck": Operation(start_health_check, changes=True),
    "CreateCluster": Operation(create_cluster, changes=True),
    "UpdateCluster": Operation(update_cluster, changes=True),
    "DeleteCluster": Operation(delete_cluster, changes=True),
    "UpdateClusterSoftware": Operation(update_software, changes=True),
    "BatchAddClusterNodes": Operation(add_nodes, changes=True),
    "BatchDeleteClusterNodes": Operation(delete_nodes, changes=True),
    "AddTags": Operation(add_tags, changes=True),
    "ListTags": Operation(list_tags),
    "DeleteTags": Operation(delete_tags, changes=True),
}
