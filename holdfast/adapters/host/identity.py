"""Instance and HyperPod cluster of a machine, from its own files."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.adapters.host.small_files import read_small

RESOURCE_CONFIG: Final = Path("opt/ml/config/resource_config.json")
"""File below the root of a HyperPod machine that lists the instances of the cluster."""

INSTANCE_ID: Final = re.compile(r"i-[0-9a-f]{8,17}")
_ARN: Final = re.compile(
    r"arn:[\w-]{1,32}:sagemaker:(?P<region>[\w-]{1,32}):[0-9]{1,20}:cluster/(?P<id>\w{1,64})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Identity of a machine; unknown fields are empty."""

    instance_id: str = ""
    """EC2 instance ID such as ``i-0592464924bd45322``."""

    instance_group: str = ""
    cluster: str = ""
    """Name of the HyperPod cluster."""

    cluster_id: str = ""
    """Last part of the cluster's ARN."""

    region: str = ""


def machine_identity(root: Path) -> Identity:
    """Return the identity in the files below ``root``: DMI on EC2, ``RESOURCE_CONFIG`` on HyperPod.

    The cluster is known without the instance ID; the instance group is not.
    """
    instance_id = firmware_instance_id(root)
    content = _read(root / RESOURCE_CONFIG)
    cluster = _mapping(content.get("ClusterConfig"))
    arn = _ARN.fullmatch(str(cluster.get("ClusterArn", "")))
    return Identity(
        instance_id=instance_id,
        instance_group=_group(content, instance_id),
        cluster=str(cluster.get("ClusterName", "")),
        cluster_id=arn["id"] if arn is not None else "",
        region=arn["region"] if arn is not None else "",
    )


def firmware_instance_id(root: Path) -> str:
    """Return the instance ID in the firmware tables of EC2 Nitro; empty elsewhere."""
    tag = read_small(root / "sys/class/dmi/id/board_asset_tag") or ""
    return tag if INSTANCE_ID.fullmatch(tag) else ""


def is_on_ec2(root: Path) -> bool:
    """Return whether the firmware or hypervisor identifies Amazon EC2."""
    vendor = read_small(root / "sys/class/dmi/id/sys_vendor") or ""
    uuid = read_small(root / "sys/hypervisor/uuid") or ""  # of instances without Nitro
    return vendor == "Amazon EC2" or uuid.startswith("ec2")


def _group(content: Mapping[str, Any], instance_id: str) -> str:
    groups = content.get("InstanceGroups")
    for group in groups if isinstance(groups, list) else ():
        instances = _mapping(group).get("Instances")
        for instance in instances if isinstance(instances, list) else ():
            if instance_id and _mapping(instance).get("InstanceId") == instance_id:
                return str(group.get("Name", ""))
    return ""


def _read(path: Path) -> Mapping[str, Any]:
    try:
        return _mapping(json.loads(read_small(path) or "{}"))
    except ValueError:
        return {}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
