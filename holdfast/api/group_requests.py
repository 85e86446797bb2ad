"""Instance groups of requests, from their description."""

from collections.abc import Mapping
from typing import Any

from holdfast.model.sagemaker import GROUP_SETTINGS


def resized(group: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return a group for ``UpdateCluster`` that differs from its description in its size only.

    Args:
        group: member of ``InstanceGroups`` of ``DescribeCluster``.
        count: number of nodes that it will have.

    """
    types = group.get("InstanceRequirements", {}).get("CurrentInstanceTypes")
    config = _config(group.get("KubernetesConfig", {}))
    patching = _patching(group.get("AutoPatchConfig", {}))
    least = min(group.get("MinCount", 0), count)
    return {
        **{key: group[key] for key in GROUP_SETTINGS if key in group},
        **({} if types is None else {"InstanceRequirements": {"InstanceTypes": types}}),
        **({"KubernetesConfig": config} if config else {}),
        **({"AutoPatchConfig": patching} if patching else {}),
        "InstanceGroupName": group["InstanceGroupName"],
        "InstanceCount": count,
        **({"MinInstanceCount": least} if least else {}),
    }


def _patching(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the requested patching of a group, which keeps its schedule."""
    names = ("PatchingStrategy", "DeploymentConfig", "IdleWaitWindowInSeconds")
    return {name: described[name] for name in names if name in described}


def _config(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the requested labels and taints of a group."""
    found = {name: described.get(f"Desired{name}") for name in ("Labels", "Taints")}
    return {name: value for name, value in found.items() if value}
