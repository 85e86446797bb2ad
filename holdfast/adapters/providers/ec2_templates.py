"""Contents of the launch template of an instance group; pure."""

import base64
import shlex
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any, Final

from holdfast.adapters.providers.machine_group_settings import Ec2GroupSettings, Ec2TypeSettings
from holdfast.model.clusters import LifecycleScripts, MachineGroup
from holdfast.model.errors import ProviderError
from holdfast.model.names import MachineTag

PENDING: Final = "pending"
DONE: Final = "done"
"""Success value of the tag ``MachineTag.SCRIPTS``; any other is the failure reason."""

_FIRST_BOOT: Final = "first_boot.sh"
_SHEBANG: Final = "#!/bin/bash\n"


def instance_type(group: MachineGroup) -> str:
    """EC2 instance type of a group's machines.

    Raises:
        ProviderError: the group has several or none.

    """
    if not group.instance_type:
        raise ProviderError(f"instance group {group.name}: InstanceType is missing; set it")
    return group.instance_type.removeprefix("ml.")


def network(group: MachineGroup, settings: Ec2GroupSettings) -> tuple[list[str], list[str]]:
    """Subnets and security groups of a group.

    Raises:
        ProviderError: no subnet is configured.

    """
    vpc = _table(group.spec.get("VpcConfig"))
    subnets = list(vpc.get("Subnets", settings.subnets))
    if not subnets:
        raise ProviderError(
            f"instance group {group.name} has no subnet: give the cluster a VpcConfig, or set"
            " ec2.subnets"
        )
    return subnets, list(vpc.get("SecurityGroupIds", settings.security_groups))


def image_of(group: MachineGroup, settings: Ec2GroupSettings, begin: Mapping[str, Any]) -> str:
    """AMI of new machines; empty if nothing names one."""
    kind = settings.types.get(group.instance_type, Ec2TypeSettings())
    own = group.previous_image or group.image
    return str(own or kind.image or begin.get("ImageId") or settings.image)


def template_data(
    group: MachineGroup,
    settings: Ec2GroupSettings,
    *,
    begin: Mapping[str, Any],
    cores: int | None,
    region: str,
) -> dict[str, Any]:
    """Data of the launch template.

    Args:
        group: instance group of the machines.
        settings: defaults for values that the request omits.
        begin: data of the operator's template for the type; empty if there is none.
        cores: cores of the type, if the group sets the threads per core.
        region: region of the machines.

    Raises:
        ProviderError: a setting is missing, or the request is not supported.

    """
    image = image_of(group, settings, begin)
    if not image:
        raise ProviderError(
            f"instance group {group.name} has no image: give it an ImageId, or set ec2.image"
        )
    data = {
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 2},
        **begin,
        "ImageId": image,
        "InstanceType": instance_type(group),
        **_security(network(group, settings)[1], begin),
        "TagSpecifications": _tags(group, begin),
    }
    data["MetadataOptions"] = {
        name: value for name, value in data["MetadataOptions"].items() if name != "State"
    }
    if settings.instance_profile:
        data["IamInstanceProfile"] = {"Name": settings.instance_profile}
    if "Spot" in _table(group.spec.get("CapacityRequirements")):
        data["InstanceMarketOptions"] = {"MarketType": "spot"}
    if cores is not None:
        threads = group.spec["ThreadsPerCore"]
        data["CpuOptions"] = {"CoreCount": cores, "ThreadsPerCore": threads}
    if disks := list(_disks(group)):
        data["BlockDeviceMappings"] = [*begin.get("BlockDeviceMappings", ()), *disks]
    if group.scripts is not None:
        if "UserData" in begin:
            raise ProviderError(
                f"instance group {group.name} has lifecycle scripts, and its launch template has"
                " user data: run one from the other"
            )
        data["UserData"] = user_data(group, group.scripts, region)
    return data


def rejection(group: MachineGroup, settings: Ec2GroupSettings) -> str:
    """Why a group is unsupported, independent of the operator's template; or nothing."""
    own = settings.types.get(group.instance_type, Ec2TypeSettings()).launch_template
    begin = {"ImageId": own} if own else {}
    try:
        network(group, settings)
        template_data(group, settings, begin=begin, cores=None, region="")
    except ProviderError as error:
        return str(error)
    return ""


def user_data(group: MachineGroup, scripts: LifecycleScripts, region: str) -> str:
    """EC2 user data that runs the lifecycle scripts of a new machine.

    Raises:
        ProviderError: the machine cannot read the source of the scripts.

    """
    if not scripts.source.startswith("s3://"):
        raise ProviderError(
            f"instance group {group.name}: EC2 instances cannot read {scripts.source}; put the"
            " lifecycle scripts into S3"
        )
    variables = {
        "SOURCE": scripts.source, "ENTRY": scripts.on_create, "CLUSTER": group.cluster,
        "GROUP": group.name, "TYPE": group.instance_type, "REGION": region,
        "TAG": MachineTag.SCRIPTS, "DONE": DONE,
    }  # fmt: skip
    assignments = "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items())
    script = files(__package__).joinpath(_FIRST_BOOT).read_text(encoding="utf-8")
    return base64.b64encode(f"{_SHEBANG}{assignments}\n{script}".encode()).decode()


def _security(groups: list[str], begin: Mapping[str, Any]) -> dict[str, Any]:
    if not groups:
        return {}
    cards = begin.get("NetworkInterfaces")
    if cards:  # EC2 wants the groups there, then
        return {"NetworkInterfaces": [{**card, "Groups": groups} for card in cards]}
    return {"SecurityGroupIds": groups}


def _tags(group: MachineGroup, begin: Mapping[str, Any]) -> list[dict[str, Any]]:
    instance_tags: dict[str, str] = {
        "Name": group.key, MachineTag.CLUSTER: group.cluster, MachineTag.GROUP: group.name,
    }  # fmt: skip
    if group.scripts is not None:
        instance_tags[MachineTag.SCRIPTS] = PENDING
    template_tags = {
        one["ResourceType"]: {tag["Key"]: tag["Value"] for tag in one["Tags"]}
        for one in begin.get("TagSpecifications", ())
    }
    tags = {**template_tags, "instance": {**template_tags.get("instance", {}), **instance_tags}}
    return [
        {
            "ResourceType": kind,
            "Tags": [{"Key": key, "Value": value} for key, value in found.items()],
        }
        for kind, found in tags.items()
    ]


def _disks(group: MachineGroup) -> Iterator[dict[str, Any]]:
    """Volumes of a group in addition to those of its image."""
    disks = group.spec.get("InstanceStorageConfigs")
    for letter, one in zip("fghi", disks if isinstance(disks, list) else (), strict=False):
        volume = _table(one).get("EbsVolumeConfig")
        if volume is None or volume.get("RootVolume"):
            raise ProviderError(
                f"instance group {group.name}: InstanceStorageConfigs supports only new EBS"
                " volumes; put the rest into the launch template of the type or into a script"
            )
        ebs = {
            "VolumeSize": volume.get("VolumeSizeInGB", 500),
            "VolumeType": "gp3",
            "Encrypted": True,
            "DeleteOnTermination": True,
        }
        if key := volume.get("VolumeKmsKeyId"):
            ebs["KmsKeyId"] = key
        yield {"DeviceName": f"/dev/sd{letter}", "Ebs": ebs}


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
