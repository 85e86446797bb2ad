"""What ``holdfast api`` is told by its configuration file."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from holdfast.adapters.providers.machine_group_settings import Ec2GroupSettings
from holdfast.api.identity import Key
from holdfast.apps.listen_address import ListenAddress

DEFAULT_LISTEN: Final = ListenAddress("127.0.0.1", 8470)
DEFAULT_URL: Final = f"http://{DEFAULT_LISTEN}"


class Alarming(StrEnum):
    """Where alarms are looked up."""

    NONE = "none"
    CLOUDWATCH = "cloudwatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiConfig:
    """Where the API is served, to whom, and how it calls itself."""

    keys: tuple[Key, ...]
    """Who may call it. ``holdfast api --new-key operate`` makes one. Let nobody else read the
    file."""

    listen: ListenAddress = DEFAULT_LISTEN
    """Only programs on this machine can reach it, unless another address is given; then put it
    behind something that speaks TLS."""

    region: str = "us-east-1"
    """What clients have to set as their region; it is part of every ARN."""

    account: str = "000000000000"
    """Twelve digits; part of every ARN."""

    name: str = ""
    """Of the cluster on Kubernetes or Slurm; made of its address if left out."""

    database: str = ""
    """Where it is written what clusters people ask for: ``sqlite:////path/of/file`` or
    ``postgresql+psycopg://user:password@host/name``; a file beside the runs of this machine if left
    out."""

    node_limit: int = 100
    """How many nodes all created clusters together may have."""

    alarms: Alarming = Alarming.NONE
    """Where alarms are looked up that take a software update back: ``cloudwatch``, or nowhere."""

    ec2: Ec2GroupSettings | None = None
    """With it, the instance groups of created clusters become EC2 Auto Scaling groups, whose
    machines join the cluster that is shown; without it, groups are of nodes that are there."""

    def __post_init__(self) -> None:
        if self.node_limit < 0:
            raise ValueError(f"node_limit must be 0 or more, got {self.node_limit}")
        if len(self.account) != 12 or not self.account.isdecimal():
            raise ValueError(f"account must be twelve digits, got {self.account!r}")
        ids = [key.access_key_id for key in self.keys]
        if not ids:
            raise ValueError(
                "keys must contain at least one key; create one with: holdfast api --new-key"
            )
        if twice := {one for one in ids if ids.count(one) > 1}:
            raise ValueError(f"keys must have different ids, got {sorted(twice)} twice")
        tokens = [key.token for key in self.keys if key.token]
        if len(set(tokens)) < len(tokens):
            raise ValueError("keys must have different tokens, got one twice")
