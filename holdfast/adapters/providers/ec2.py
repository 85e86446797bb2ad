"""EC2: reboots or terminates an instance."""

from collections.abc import Mapping
from typing import Any, Final

from holdfast.adapters.providers.aws_calls import (
    UNREACHABLE_PAUSE,
    Aws,
    instance_id,
    require_instance_of,
)
from holdfast.adapters.providers.settings import ProviderConfig
from holdfast.model.errors import NodeGone, ProviderError, RetryLater
from holdfast.model.nodes import NodeView

_TERMINATED: Final = ("shutting-down", "terminated")


class Ec2:
    """Provider for the instances of one region and account."""

    def __init__(self, ec2: Aws) -> None:
        self._ec2 = ec2

    def reboot(self, node: NodeView, token: str) -> None:  # noqa: ARG002
        """Call ``RebootInstances``, which takes no token; it is harmless on a booting instance."""
        instance = instance_id(node, self._ec2.region)
        found = self.find(instance)
        if found is None or is_terminated(found):
            raise NodeGone(f"{instance} no longer exists in {self._ec2.region}")
        require_instance_of(node, instance, names_of(found))
        state = found["State"]["Name"]
        if state == "pending":
            raise RetryLater(f"{instance} is still being launched", after=UNREACHABLE_PAUSE)
        if state != "running":
            raise ProviderError(f"{instance} is {state}: start it, or request its replacement")
        self._ec2.call("reboot_instances", InstanceIds=[instance])

    def replace(self, node: NodeView, token: str) -> None:  # noqa: ARG002
        """Terminate the instance; whatever launched it must launch a replacement."""
        instance = instance_id(node, self._ec2.region)
        found = self.known(instance)
        if not is_terminated(found):
            require_instance_of(node, instance, names_of(found))
            self._ec2.call("terminate_instances", InstanceIds=[instance])

    def known(self, instance: str) -> dict[str, Any]:
        """Description of an instance, which must exist.

        Raises:
            ProviderError: EC2 does not know it, as an hour after its termination or in a wrong
                account, so whether it was replaced is unknown.

        """
        found = self.find(instance)
        if found is None:
            raise ProviderError(
                f"{instance} not found in {self._ec2.region}: it was terminated more than an"
                " hour ago and not replaced, or the credentials belong to another account"
            )
        return found

    def find(self, instance: str) -> dict[str, Any] | None:
        """Description of an instance by EC2."""
        answer = self._ec2.call(  # by a filter, so that an unknown one is no error
            "describe_instances", Filters=[{"Name": "instance-id", "Values": [instance]}]
        )
        found = [one for group in answer["Reservations"] for one in group["Instances"]]
        return found[0] if found else None


def is_terminated(instance: Mapping[str, Any]) -> bool:
    """Whether a described instance is terminating or terminated."""
    return instance["State"]["Name"] in _TERMINATED


def names_of(instance: Mapping[str, Any]) -> list[str]:
    """DNS names and IP addresses of a described instance, of all its network interfaces."""
    interfaces = instance.get("NetworkInterfaces") or ()
    found: list[str] = []
    for one in (instance, *interfaces):
        keys = ("PrivateDnsName", "PrivateIpAddress", "PublicDnsName", "PublicIpAddress")
        found += [one.get(key) or "" for key in keys]
        found += [each["PrivateIpAddress"] for each in one.get("PrivateIpAddresses") or ()]
        found += [each["Ipv6Address"] for each in one.get("Ipv6Addresses") or ()]
    return list(dict.fromkeys(name for name in found if name))


def build(config: ProviderConfig) -> Ec2:
    """Build the provider."""
    return Ec2(Aws("ec2", config.aws))
