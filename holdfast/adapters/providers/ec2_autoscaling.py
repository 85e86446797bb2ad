"""EC2 Auto Scaling: a group replaces an instance that is marked unhealthy.

The call is that of AWS's Neuron node recovery agent: ``SetInstanceHealth``.
"""

from typing import Any, Final

from holdfast.adapters.providers.aws_calls import (
    CAPACITY_PAUSE,
    Aws,
    instance_id,
    require_instance_of,
)
from holdfast.adapters.providers.ec2 import Ec2, is_terminated, names_of
from holdfast.adapters.providers.settings import ProviderConfig
from holdfast.model.errors import ProviderError, RetryLater
from holdfast.model.nodes import NodeView

_GROUP_TAG: Final = "aws:autoscaling:groupName"

_NEEDED: Final = ("ReplaceUnhealthy", "Terminate", "Launch")
"""Processes of a group that are required to terminate and replace an unhealthy instance.
``HealthCheck`` is not among them: health that is set by a call counts without it."""


class Ec2AutoScaling:
    """Provider for the Auto Scaling groups of one region and account."""

    def __init__(self, ec2: Ec2, autoscaling: Aws) -> None:
        self._ec2 = ec2
        self._autoscaling = autoscaling

    def reboot(self, node: NodeView, token: str) -> None:
        """Reboot the instance, which stays in its group."""
        self._ec2.reboot(node, token)

    def replace(self, node: NodeView, token: str) -> None:  # noqa: ARG002
        """Mark the instance unhealthy, unless it already is or has left its group.

        For an instance that has left, this checks whether its group can launch another, so that
        a repeated order reports why its replacement is missing.
        """
        instance = instance_id(node, self._autoscaling.region)
        answer = self._autoscaling.call("describe_auto_scaling_instances", InstanceIds=[instance])
        members = answer["AutoScalingInstances"]
        if not members:
            self._has_left(instance)
            return
        member = members[0]
        group, state = member["AutoScalingGroupName"], member["LifecycleState"]
        if "Terminat" in state:
            self._expect_launch(group, instance)
            return
        _refuse_outside_service(instance, group, state)
        self._refuse_suspended(group, instance, _NEEDED)
        if member["HealthStatus"].lower() != "unhealthy":
            require_instance_of(node, instance, names_of(self._ec2.known(instance)))
            self._autoscaling.call(
                "set_instance_health",
                InstanceId=instance,
                HealthStatus="Unhealthy",
                ShouldRespectGracePeriod=False,
            )

    def _has_left(self, instance: str) -> None:
        found = self._ec2.known(instance)
        if not is_terminated(found):
            raise ProviderError(
                f"{instance} is not in an Auto Scaling group: attach it to one, or set"
                ' provider.replace, for example to "ec2"'
            )
        tags = {tag["Key"]: tag["Value"] for tag in found.get("Tags", [])}
        group = tags.get(_GROUP_TAG)
        if group is not None:
            self._expect_launch(group, instance)

    def _expect_launch(self, group: str, instance: str) -> None:
        self._refuse_suspended(group, instance, ("Launch",))
        answer = self._autoscaling.call(
            "describe_scaling_activities", AutoScalingGroupName=group, MaxRecords=1
        )
        for newest in answer["Activities"][:1]:
            if newest["StatusCode"].startswith("Fail"):
                why = newest.get("StatusMessage") or newest.get("Description", "")
                raise RetryLater(
                    f"{instance} was terminated, but group {group} could not launch another: {why}",
                    after=CAPACITY_PAUSE,
                    is_outcome_unknown=True,  # the group itself retries
                )

    def _refuse_suspended(self, group: str, instance: str, needed: tuple[str, ...]) -> None:
        found = self._group(group)
        suspended = {one["ProcessName"] for one in found.get("SuspendedProcesses", [])}
        names = [name for name in needed if name in suspended]
        if names:
            raise ProviderError(
                f"group {group} does not replace {instance}: {_and(names)} suspended; resume with"
                f" aws autoscaling resume-processes --auto-scaling-group-name {group}"
                f" --scaling-processes {' '.join(names)}"
            )

    def _group(self, group: str) -> dict[str, Any]:
        answer = self._autoscaling.call(
            "describe_auto_scaling_groups", AutoScalingGroupNames=[group]
        )
        if not answer["AutoScalingGroups"]:
            raise ProviderError(f"Auto Scaling group {group} no longer exists")
        found: dict[str, Any] = answer["AutoScalingGroups"][0]
        return found


def _refuse_outside_service(instance: str, group: str, state: str) -> None:
    """Refuse an instance that is not in service: groups replace only those in service."""
    if state.startswith("Warmed:"):
        raise ProviderError(
            f"{instance} waits in the warm pool of group {group} ({state}), which replaces only"
            " instances in service: terminate it; the pool is then refilled"
        )
    if state.endswith("Standby") or state.startswith("Detach"):
        raise ProviderError(
            f"{instance} is {state} in group {group}, which replaces only instances in service:"
            " bring it back with aws autoscaling exit-standby, or terminate it"
        )


def _and(names: list[str]) -> str:
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'}"


def build(config: ProviderConfig) -> Ec2AutoScaling:
    """Build the provider."""
    return Ec2AutoScaling(Ec2(Aws("ec2", config.aws)), Aws("autoscaling", config.aws))
