"""What machines of EC2 are made of where the request for a cluster does not say: ``[ec2]``.

Loads nothing of AWS, so that a mistake is told without boto3.
"""

from dataclasses import dataclass, field
from datetime import timedelta

from holdfast.adapters.providers.settings import AwsSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Ec2TypeSettings:
    """What is special about machines of one type."""

    image: str = ""
    """The AMI that they boot."""

    launch_template: str = ""
    """Id or name of a launch template of yours, whose default version theirs begins as: network
    cards for EFA, disks, user data that joins a cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ec2GroupSettings:
    """How the instance groups of clusters become EC2 Auto Scaling groups."""

    subnets: tuple[str, ...] = ()
    """Where machines are launched whose cluster has no ``VpcConfig``."""

    security_groups: tuple[str, ...] = ()
    """Of machines whose cluster has no ``VpcConfig``."""

    image: str = ""
    """The AMI of groups without ``ImageId`` whose type has none, either."""

    instance_profile: str = ""
    """The name of the instance profile of the machines. With lifecycle scripts it has to allow
    ``s3:GetObject`` and ``s3:ListBucket`` on their bucket and ``ec2:CreateTags`` on the instance
    itself."""

    types: dict[str, Ec2TypeSettings] = field(default_factory=dict)
    """By instance type, such as ``ml.p5.48xlarge``."""

    scripts_timeout: timedelta = timedelta(hours=1)
    """A machine whose lifecycle scripts have told nothing so long after its launch has failed."""

    aws: AwsSettings = field(default_factory=AwsSettings)

    def __post_init__(self) -> None:
        problems = [
            f"types.{name}: {name!r} does not begin with ml."
            for name in self.types
            if not name.startswith("ml.")
        ]
        if self.scripts_timeout <= timedelta(0):
            problems.append(f"scripts_timeout must be longer than 0s, got {self.scripts_timeout}")
        if problems:
            raise ValueError("; ".join(problems))
