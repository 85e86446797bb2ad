"""EC2 Auto Scaling groups for the instance groups of clusters."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from holdfast.adapters.providers.aws_calls import CAPACITY_PAUSE, UNREACHABLE_PAUSE, Aws, AwsRefusal
from holdfast.adapters.providers.ec2_templates import (
    DONE,
    PENDING,
    image_of,
    instance_type,
    network,
    rejection,
    template_data,
)
from holdfast.adapters.providers.machine_group_settings import Ec2GroupSettings, Ec2TypeSettings
from holdfast.model.clusters import DesiredCluster, GroupMachine, MachineGroup, MachineState
from holdfast.model.errors import ProviderError, RetryLater
from holdfast.model.names import MachineTag
from holdfast.ports.clock import Clock

_GROUP_TAG: Final = "aws:autoscaling:groupName"
_REBALANCING: Final = "AZRebalance"
"""Suspended process: it would terminate machines with jobs to balance zones."""

_NO_TEMPLATE: Final = frozenset(
    ("InvalidLaunchTemplateId.NotFound", "InvalidLaunchTemplateName.NotFoundException")
)
_PARAMETER: Final = "resolve:ssm:"
"""Prefix of an image that a parameter of Systems Manager names."""

_ALIVE: Final = ("pending", "running", "shutting-down", "stopping", "stopped")


class _NotOwned(ProviderError):
    """The Auto Scaling group of that name belongs to somebody else."""


class Ec2MachineGroups:
    """A ``MachineGroups``: an Auto Scaling group and a launch template of the same name for each.

    Their name is the key of the group. A group of that name without a tag of Holdfast is not
    changed.
    """

    def __init__(
        self,
        ec2: Aws,
        autoscaling: Aws,
        parameters: Aws,
        settings: Ec2GroupSettings,
        clock: Clock,
    ) -> None:
        self._ec2 = ec2
        self._autoscaling = autoscaling
        self._parameters = parameters
        self._settings = settings
        self._clock = clock

    def ensure(self, group: MachineGroup) -> None:
        """See ``MachineGroups.ensure``."""
        subnets = ",".join(network(group, self._settings)[0])
        found = self._find(group.key)
        self._put_template(group)
        if found is None:
            self._create(group, subnets)
            found = self._own(group.key)
        if "Status" in found:
            raise RetryLater(f"group {group.key} is still being deleted", after=UNREACHABLE_PAUSE)
        if found["VPCZoneIdentifier"] != subnets:
            self._autoscaling.call(
                "update_auto_scaling_group",
                AutoScalingGroupName=group.key,
                VPCZoneIdentifier=subnets,
            )
        if _REBALANCING not in _suspended(found):
            self._autoscaling.call(
                "suspend_processes",
                AutoScalingGroupName=group.key,
                ScalingProcesses=[_REBALANCING],
            )

    def rejections(self, cluster: DesiredCluster) -> Sequence[str]:
        """Unsupported parts of a cluster, as far as known without calling AWS."""
        return [
            why
            for one in cluster.groups
            if not one.is_going and (why := rejection(one.made_of, self._settings))
        ]

    def machines(self, group: str) -> Sequence[GroupMachine]:
        """See ``MachineGroups.machines``."""
        found = self._find(group)
        members = {one["InstanceId"]: one for one in found["Instances"]} if found else {}
        return [self._machine(one, members) for one in self._instances(group)]

    def newest_image(self, group: MachineGroup) -> str:
        """See ``MachineImages.newest_image``: also of parameters of Systems Manager."""
        begin = self._begin(group.instance_type)
        image = image_of(replace(group, image="", previous_image=""), self._settings, begin)
        if not image.startswith(_PARAMETER):
            return image
        found = self._parameters.call("get_parameter", Name=image.removeprefix(_PARAMETER))
        return str(found["Parameter"]["Value"])

    def scale(self, group: str, count: int) -> None:
        """See ``MachineGroups.scale``.

        Raises:
            RetryLater: the group failed to launch as many, for example for lack of capacity.

        """
        found = self._own(group)
        if (found["DesiredCapacity"], found["MaxSize"]) != (count, count):
            self._autoscaling.call(
                "update_auto_scaling_group",
                AutoScalingGroupName=group,
                MinSize=0,  # machines may be removed permanently
                MaxSize=count,
                DesiredCapacity=count,
            )
        elif sum(not _is_leaving(one) for one in found["Instances"]) < count:
            self._expect_launch(found)

    def remove(self, group: str, ids: Sequence[str]) -> None:
        """See ``MachineGroups.remove``."""
        staying = set(self._staying(group))
        for instance in ids:
            if instance in staying:
                self._remove(group, instance)

    def delete(self, group: str) -> None:
        """See ``MachineGroups.delete``: a group of others is as none."""
        try:
            found = self._find(group)
        except _NotOwned:
            return
        if found is not None and "Status" not in found:
            self._autoscaling.call(
                "delete_auto_scaling_group", AutoScalingGroupName=group, ForceDelete=True
            )
        if template := self._template(group, "$Latest"):
            self._ec2.call("delete_launch_template", LaunchTemplateId=template["LaunchTemplateId"])

    def _put_template(self, group: MachineGroup) -> None:
        data = template_data(
            group,
            self._settings,
            begin=self._begin(group.instance_type),
            cores=self._cores(group),
            region=self._ec2.region,
        )
        reported = json.dumps([group.revision, data], sort_keys=True)
        digest = hashlib.sha256(reported.encode()).hexdigest()
        newest = self._template(group.key, "$Latest")
        if newest is None:
            operation = "create_launch_template"
        elif newest.get("VersionDescription") != digest:
            operation = "create_launch_template_version"
        else:
            return
        self._ec2.call(
            operation,
            LaunchTemplateName=group.key,
            VersionDescription=digest,
            LaunchTemplateData=data,
        )

    def _begin(self, kind: str) -> dict[str, Any]:
        own = self._settings.types.get(kind, Ec2TypeSettings()).launch_template
        if not own:
            return {}
        found = self._template(own, "$Default")
        if found is None:
            raise ProviderError(
                f"launch template {own} not found: set another for ec2.types.{kind}"
            )
        data: dict[str, Any] = found["LaunchTemplateData"]
        return data

    def _template(self, name: str, version: str) -> dict[str, Any] | None:
        by = "LaunchTemplateId" if name.startswith("lt-") else "LaunchTemplateName"
        try:
            answer = self._ec2.call(
                "describe_launch_template_versions", **{by: name}, Versions=[version]
            )
        except AwsRefusal as refusal:
            if refusal.code in _NO_TEMPLATE:
                return None
            raise
        found: dict[str, Any] = answer["LaunchTemplateVersions"][0]
        return found

    def _cores(self, group: MachineGroup) -> int | None:
        """Cores of the machines, required only if threads per core are limited."""
        threads = group.spec.get("ThreadsPerCore")
        if threads is None:
            return None
        kind = instance_type(group)
        answer = self._ec2.call("describe_instance_types", InstanceTypes=[kind])
        processor = answer["InstanceTypes"][0]["VCpuInfo"]
        if processor.get("DefaultThreadsPerCore", threads) == threads:
            return None
        return int(processor["DefaultCores"])

    def _create(self, group: MachineGroup, subnets: str) -> None:
        tags = {MachineTag.CLUSTER: group.cluster, MachineTag.GROUP: group.name}
        self._autoscaling.call(
            "create_auto_scaling_group",
            AutoScalingGroupName=group.key,
            LaunchTemplate={"LaunchTemplateName": group.key, "Version": "$Latest"},
            MinSize=0,
            MaxSize=0,
            DesiredCapacity=0,
            VPCZoneIdentifier=subnets,
            Tags=[
                {"Key": key, "Value": value, "PropagateAtLaunch": False}
                for key, value in tags.items()
            ],
        )

    def _find(self, group: str) -> dict[str, Any] | None:
        answer = self._autoscaling.call(
            "describe_auto_scaling_groups", AutoScalingGroupNames=[group]
        )
        if not answer["AutoScalingGroups"]:
            return None
        found: dict[str, Any] = answer["AutoScalingGroups"][0]
        if MachineTag.CLUSTER not in {one["Key"] for one in found["Tags"]}:
            raise _NotOwned(
                f"the Auto Scaling group {group} is not Holdfast's: it has no tag"
                f" {MachineTag.CLUSTER}; choose another name for the cluster or the group"
            )
        return found

    def _own(self, group: str) -> dict[str, Any]:
        found = self._find(group)
        if found is None:
            raise ProviderError(f"Auto Scaling group {group} no longer exists")
        return found

    def _staying(self, group: str) -> Iterator[str]:
        found = self._find(group)
        for one in found["Instances"] if found else ():
            if not _is_leaving(one):
                yield one["InstanceId"]

    def _remove(self, group: str, instance: str) -> None:
        try:
            self._autoscaling.call(
                "terminate_instance_in_auto_scaling_group",
                InstanceId=instance,
                ShouldDecrementDesiredCapacity=True,
            )
        except AwsRefusal:
            if instance in self._staying(group):
                raise

    def _instances(self, group: str) -> Iterator[dict[str, Any]]:
        requested: dict[str, Any] = {
            "Filters": [
                {"Name": f"tag:{_GROUP_TAG}", "Values": [group]},
                {"Name": "instance-state-name", "Values": list(_ALIVE)},
            ]
        }
        while True:
            answer = self._ec2.call("describe_instances", **requested)
            for reservation in answer["Reservations"]:
                yield from reservation["Instances"]
            if not answer.get("NextToken"):
                return
            requested["NextToken"] = answer["NextToken"]

    def _machine(self, instance: dict[str, Any], members: dict[str, Any]) -> GroupMachine:
        state, message = self._state(instance, members.get(instance["InstanceId"]))
        return GroupMachine(
            id=instance["InstanceId"],
            name=instance.get("PrivateDnsName") or instance["InstanceId"],
            state=state,
            launched_at=instance["LaunchTime"],
            image=instance.get("ImageId", ""),
            addresses=tuple(
                instance[key] for key in ("PrivateIpAddress", "Ipv6Address") if instance.get(key)
            ),
            message=message,
        )

    def _state(
        self, instance: dict[str, Any], member: dict[str, Any] | None
    ) -> tuple[MachineState, str]:
        if instance["State"]["Name"] not in ("pending", "running"):
            return MachineState.LEAVING, f"its EC2 state is {instance['State']['Name']}"
        if member is None or _is_leaving(member):
            return MachineState.LEAVING, ""
        tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())}
        reported = tags.get(MachineTag.SCRIPTS, DONE)
        if reported not in (PENDING, DONE):
            return MachineState.FAILED, f"its lifecycle scripts: {reported}"
        if reported == PENDING:
            limit = self._settings.scripts_timeout
            if self._clock.now() - instance["LaunchTime"] > limit:
                return MachineState.FAILED, f"its lifecycle scripts reported nothing within {limit}"
            return MachineState.JOINING, "its lifecycle scripts have not ended"
        if member["LifecycleState"] != "InService":
            return MachineState.JOINING, ""
        return MachineState.RUNNING, ""

    def _expect_launch(self, found: dict[str, Any]) -> None:
        group = found["AutoScalingGroupName"]
        if "Launch" in _suspended(found):
            raise ProviderError(
                f"group {group} launches nothing: Launch is suspended; resume with aws autoscaling"
                f" resume-processes --auto-scaling-group-name {group} --scaling-processes Launch"
            )
        answer = self._autoscaling.call(
            "describe_scaling_activities", AutoScalingGroupName=group, MaxRecords=1
        )
        for newest in answer["Activities"][:1]:
            if newest["StatusCode"].startswith("Fail"):
                why = newest.get("StatusMessage") or newest.get("Description", "")
                raise RetryLater(f"group {group} cannot launch: {why}", after=CAPACITY_PAUSE)


def _is_leaving(member: dict[str, Any]) -> bool:
    """Whether a member of a group is leaving, or is being replaced."""
    state = member["LifecycleState"]
    return (
        "Terminat" in state
        or state.startswith("Detach")
        or member["HealthStatus"].lower() == "unhealthy"
    )


def _suspended(found: dict[str, Any]) -> set[str]:
    return {one["ProcessName"] for one in found.get("SuspendedProcesses", ())}


def build(settings: Ec2GroupSettings, clock: Clock) -> Ec2MachineGroups:
    """Build the groups for the region and account of the settings."""
    return Ec2MachineGroups(
        Aws("ec2", settings.aws),
        Aws("autoscaling", settings.aws),
        Aws("ssm", settings.aws),
        settings,
        clock,
    )
