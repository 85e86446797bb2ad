"""Response of ``DescribeCluster`` for a cluster created through the API."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.api.autoscaling import described_autoscaling
from holdfast.api.clusters import Node
from holdfast.api.kubernetes_config import group_config
from holdfast.api.patching import described_patching, image_status
from holdfast.api.sagemaker_model import Json
from holdfast.decisions.cluster_members import desired_settings
from holdfast.model.clusters import DesiredCluster, DesiredGroup, GroupStage, SoftwareUpdate
from holdfast.model.sagemaker import GROUP_SETTINGS, ClusterStatus, GroupStatus, InstanceStatus

_BY_CLUSTER: Final = {
    ClusterStatus.CREATING: GroupStatus.CREATING,
    ClusterStatus.UPDATING: GroupStatus.UPDATING,
    ClusterStatus.ROLLING_BACK: GroupStatus.UPDATING,
    ClusterStatus.FAILED: GroupStatus.FAILED,
}


def described(cluster: DesiredCluster, nodes: Sequence[Node]) -> Json:
    """Members of the description of a cluster beyond its summary."""
    return {
        **cluster.requested,
        "FailureMessage": cluster.failure or _refusals(cluster) or None,
        "InstanceGroups": [
            _group(cluster, one, [node for node in nodes if node.group == one.name])
            for one in cluster.groups
        ],
        "NodeRecovery": node_recovery(is_automatic=cluster.repairs),
        "NodeProvisioningMode": "Continuous" if cluster.is_continuous else None,
        "AutoScaling": described_autoscaling(cluster),
    }


def _refusals(cluster: DesiredCluster) -> str:
    """Why the provider of the machines refuses groups, which is retried; empty if it does not."""
    failures = ((one.name, one.failure or one.listing_failure) for one in cluster.groups)
    return "; ".join(f"{name}: {why}" for name, why in failures if why)


def node_recovery(*, is_automatic: bool) -> str:
    """``NodeRecovery`` in the spelling of the API."""
    return "Automatic" if is_automatic else "None"


def _group(cluster: DesiredCluster, group: DesiredGroup, nodes: Sequence[Node]) -> Json:
    spec: Mapping[str, Any] = dict(group.made_of.spec)
    running = sum(node.status is InstanceStatus.RUNNING for node in nodes)
    status = _status(cluster, group, running)
    update = group.update
    is_scaling = len(nodes) != group.target or running < group.target
    types = spec.get("InstanceRequirements", {}).get("InstanceTypes")
    return {
        **{name: spec[name] for name in GROUP_SETTINGS if name in spec},
        "InstanceGroupName": group.name,
        "InstanceRequirements": None
        if types is None
        else {"CurrentInstanceTypes": types, "DesiredInstanceTypes": types},
        "CurrentCount": running,
        "TargetCount": group.target,
        "MinCount": group.minimum or None,
        "TargetStateCount": running,
        "Status": status,
        "ActiveOperations": {"Scaling": 1} if is_scaling else None,
        "CurrentImageId": None if _is_moving(update) else _image(group, nodes),
        "DesiredImageId": group.made_of.previous_image or group.made_of.image or None,
        "AutoPatchConfig": described_patching(group),
        "ImageVersionStatus": image_status(group),
        "SoftwareUpdateStatus": None if update is None else update.status,
        "KubernetesConfig": group_config(desired_settings(group), nodes),
        "ActiveSoftwareUpdateConfig": _deployment(update) if _is_moving(update) else None,
    }


def _image(group: DesiredGroup, nodes: Sequence[Node]) -> str | None:
    """Image of the nodes of a group; if it is not known or not the same, that of new ones."""
    images = {node.image for node in nodes if node.image}
    if len(images) == 1:
        return images.pop()
    return group.made_of.previous_image or group.made_of.image or None


def _is_moving(update: SoftwareUpdate | None) -> bool:
    return update is not None and update.is_active


def _status(cluster: DesiredCluster, group: DesiredGroup, running: int) -> GroupStatus:
    if group.is_going:
        return GroupStatus.DELETING
    if _is_moving(group.update):
        return GroupStatus.SYSTEM_UPDATING
    if cluster.status in _BY_CLUSTER and group.stage is GroupStage.NEW:
        return _BY_CLUSTER[cluster.status]
    if running < group.target:
        return _BY_CLUSTER.get(cluster.status, GroupStatus.DEGRADED)
    return GroupStatus.FAILED if cluster.status is ClusterStatus.FAILED else GroupStatus.IN_SERVICE


def _deployment(update: SoftwareUpdate | None) -> Json | None:
    if update is None:
        return None
    return {
        "RollingUpdatePolicy": {
            "MaximumBatchSize": {"Type": "INSTANCE_COUNT", "Value": update.batch},
            "RollbackMaximumBatchSize": {"Type": "INSTANCE_COUNT", "Value": update.rollback_batch},
        },
        "WaitIntervalInSeconds": round(update.bake.total_seconds()),
        "AutoRollbackConfiguration": [{"AlarmName": one} for one in update.alarms] or None,
    }
