"""Settings ``[ec2]``: defaults for EC2 machines of created clusters.

Imports nothing of AWS, so that invalid settings are reported without boto3.
"""

from dataclasses import dataclass, field
from datetime import timedelta

from holdfast.adapters.providers.settings import AwsSettings
from holdfast.kit.ranges import refuse, too_short


@dataclass(frozen=True, slots=True, kw_only=True)
class Ec2TypeSettings:
    """Settings of machines of one instance type."""

    image: str = ""
    """AMI of the machines."""

    launch_template: str = ""
    """ID or name of a launch template whose default version is the base of theirs: network cards
    for EFA, disks, user data that joins a cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ec2GroupSettings:
    """Settings of the EC2 Auto Scaling groups created for instance groups."""

    subnets: tuple[str, ...] = ()
    """Subnets of machines whose cluster has no ``VpcConfig``."""

    security_groups: tuple[str, ...] = ()
    """Security groups of machines whose cluster has no ``VpcConfig``."""

    image: str = ""
    """AMI of groups without ``ImageId`` whose instance type has no ``image``."""

    instance_profile: str = ""
    """The name of the instance profile of the machines. With lifecycle scripts it must allow
    ``s3:GetObject`` and ``s3:ListBucket`` on their bucket and ``ec2:CreateTags`` on the instance
    itself."""

    types: dict[str, Ec2TypeSettings] = field(default_factory=dict)
    """Settings by instance type, such as ``ml.p5.48xlarge``."""

    scripts_timeout: timedelta = timedelta(hours=1)
    """Time after launch until a machine without a report of its lifecycle scripts fails."""

    aws: AwsSettings = field(default_factory=AwsSettings)

    def __post_init__(self) -> None:
        problems = [
            f"types.{name}: {name!r} does not begin with ml."
            for name in self.types
            if not name.startswith("ml.")
        ]
        refuse(*problems, *too_short(self, "scripts_timeout"))
