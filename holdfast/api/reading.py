"""Operations that show clusters and their nodes."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from ipaddress import ip_address
from typing import Any, TypeVar

from holdfast.api.call import Call, node_named
from holdfast.api.clusters import Cluster, Node
from holdfast.api.described import described
from holdfast.api.kubernetes_config import described_config
from holdfast.api.paging import page
from holdfast.api.problems import ValidationException
from holdfast.api.sagemaker_model import Json
from holdfast.decisions.cluster_members import desired_settings
from holdfast.model.sagemaker import NODE_SETTINGS, ClusterStatus, GroupStatus, InstanceStatus

Item = TypeVar("Item")


def list_clusters(call: Call) -> Json:
    """See ``ListClusters``."""
    request = call.request
    part = request.get("NameContains", "")
    named = [one for one in call.clusters if one.is_listed and part in one.name]
    found = _between(named, request, lambda one: one.created_at)
    is_by_name = request.get("SortBy") == "NAME"
    shown, token = page(
        found,
        request,
        key=lambda one: (one.name if is_by_name else one.created_at, one.name),
        descending=request.get("SortOrder") == "Descending",
    )
    return {"ClusterSummaries": [_summary(call, one) for one in shown], "NextToken": token}


def describe_cluster(call: Call) -> Json:
    """See ``DescribeCluster``."""
    cluster = call.cluster()
    nodes = cluster.nodes()
    desired = cluster.desired()
    known = {**_summary(call, cluster), "Orchestrator": _orchestrator(call)}
    if desired is not None:
        return {**known, **described(desired, nodes)}
    return {
        **known,
        "InstanceGroups": [_group(name, nodes) for name in sorted({one.group for one in nodes})],
    }


def list_cluster_nodes(call: Call) -> Json:
    """See ``ListClusterNodes``."""
    request = call.request
    with_names = request.get("IncludeNodeLogicalIds", False)
    part = request.get("InstanceGroupNameContains", "")
    named = [
        one
        for one in call.cluster().nodes()
        if part in one.group and (one.has_machine or with_names)
    ]
    found = _between(named, request, lambda one: one.launched_at)
    is_by_name = request.get("SortBy") == "NAME"
    shown, token = page(
        found,
        request,
        key=lambda one: (
            one.instance_id if is_by_name else one.launched_at,
            one.instance_id or one.known_as,
        ),
        descending=request.get("SortOrder") == "Descending",
    )
    return {
        "ClusterNodeSummaries": [_node(one, with_name=with_names) for one in shown],
        "NextToken": token,
    }


def describe_cluster_node(call: Call) -> Json:
    """See ``DescribeClusterNode``."""
    request = call.request
    if ("NodeId" in request) == ("NodeLogicalId" in request):
        raise ValidationException("Exactly one of NodeId and NodeLogicalId must be given")
    cluster = call.cluster()
    node = node_named(cluster.nodes(), request)
    details = {
        **_node(node, with_name=True),
        "CurrentImageId": node.image or None,
        **_addresses(node),
        **_group_settings(cluster, node),
    }
    return {"NodeDetails": details}


def _summary(call: Call, cluster: Cluster) -> Json:
    desired = cluster.desired()
    return {
        "ClusterArn": call.place.arn(cluster.id),
        "ClusterName": cluster.name,
        "CreationTime": cluster.created_at,
        "ClusterStatus": ClusterStatus.IN_SERVICE if desired is None else desired.status,
    }


def _group_settings(cluster: Cluster, node: Node) -> Json:
    """Settings of a node that its instance group requests."""
    desired = cluster.desired()
    if desired is None:
        return {}
    for group in desired.groups:
        if group.name == node.group:
            spec = dict(group.made_of.spec)
            config = described_config(desired_settings(group), node.settings)
            shown = {name: spec[name] for name in NODE_SETTINGS if name in spec}
            return {**shown, "KubernetesConfig": config}
    return {}


def _orchestrator(call: Call) -> Json | None:
    if call.kubernetes is None:
        return None
    return {"Eks": {"ClusterArn": call.place.kubernetes_arn(call.kubernetes.name)}}


def _group(name: str, nodes: Any) -> Json:
    members = [one for one in nodes if one.group == name]
    kinds = Counter(one.instance_type for one in members)
    running = sum(one.status is InstanceStatus.RUNNING for one in members)
    return {
        "InstanceGroupName": name,
        "InstanceType": kinds.most_common(1)[0][0],
        "CurrentCount": running,
        "TargetCount": len(members),
        "Status": GroupStatus.IN_SERVICE,
    }


def _node(node: Node, *, with_name: bool) -> Json:
    return {
        "InstanceGroupName": node.group,
        "InstanceId": node.instance_id,
        "NodeLogicalId": node.known_as if with_name else None,
        "InstanceType": node.instance_type,
        "LaunchTime": node.launched_at,
        "PrivateDnsHostname": node.name or None,
        "InstanceStatus": {"Status": node.status, "Message": node.message or None},
    }


def _addresses(node: Node) -> Json:
    """First IP address of each version that other nodes can reach."""
    found: dict[int, str] = {}
    for one in node.addresses:
        with suppress(ValueError):  # a host name
            address = ip_address(one)
            if not (address.is_loopback or address.is_link_local):
                found.setdefault(address.version, one)
    return {"PrivatePrimaryIp": found.get(4), "PrivatePrimaryIpv6": found.get(6)}


def _between(
    items: Sequence[Item], request: Json, moment: Callable[[Item], datetime]
) -> Sequence[Item]:
    """Items created between the times of a request; all if it sets none."""
    after, before = request.get("CreationTimeAfter"), request.get("CreationTimeBefore")
    if after is None and before is None:
        return items
    return [
        one
        for one in items
        if (after is None or moment(one) > after) and (before is None or moment(one) < before)
    ]
