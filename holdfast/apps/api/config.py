"""Configuration file of ``holdfast api``."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from holdfast.adapters.providers.machine_group_settings import Ec2GroupSettings
from holdfast.api.identity import AccessKey
from holdfast.apps.listen_address import ListenAddress
from holdfast.kit.connections import ConnectionLimits

DEFAULT_LISTEN: Final = ListenAddress("127.0.0.1", 8470)
DEFAULT_URL: Final = f"http://{DEFAULT_LISTEN}"


class Alarming(StrEnum):
    """Source of alarms."""

    NONE = "none"
    CLOUDWATCH = "cloudwatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiConfig:
    """Settings of the API: listen address, access keys, region and account."""

    keys: tuple[AccessKey, ...]
    """Access keys of the API. ``holdfast api --new-key operate`` creates one. Make the file
    readable by its owner only."""

    listen: ListenAddress = DEFAULT_LISTEN
    """Listen address. The default is reachable from this machine only; for any other address,
    use a reverse proxy that terminates TLS."""

    region: str = "us-east-1"
    """Region that clients must set; part of every ARN."""

    account: str = "000000000000"
    """Account ID, twelve digits; part of every ARN."""

    name: str = ""
    """Name of the Kubernetes or Slurm cluster. Default: derived from its address."""

    database: str = ""
    """Database URL of the created clusters: ``sqlite:////path/of/file`` or
    ``postgresql+psycopg://user:password@host/name``. Default: a file beside the runs of this
    machine."""

    node_limit: int = 100
    """Maximum number of nodes of all created clusters together."""

    max_connections: int = 256
    """Maximum number of open connections. Beyond it, a new connection replaces the oldest idle one
    of the client that has the most. Never more than half of the file descriptors that the process
    may open."""

    max_connections_per_client: int = 64
    """Maximum number of open connections of one IP address. Loopback addresses are exempt, because
    all clients of a reverse proxy or an SSH tunnel share one. If the proxy is on another machine,
    set it to ``max_connections``."""

    alarms: Alarming = Alarming.NONE
    """Source of the alarms that roll back a software update: ``cloudwatch``, or none."""

    ec2: Ec2GroupSettings | None = None
    """Settings of EC2 Auto Scaling groups. If set, instance groups of created clusters become
    Auto Scaling groups whose machines join the served cluster; if not, groups consist of existing
    nodes."""

    def __post_init__(self) -> None:
        if self.node_limit < 0:
            raise ValueError(f"node_limit must be 0 or more, got {self.node_limit}")
        for name in ("max_connections", "max_connections_per_client"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)}")
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

    @property
    def connection_limits(self) -> ConnectionLimits:
        """Limits of the open connections."""
        return ConnectionLimits(
            total=self.max_connections, per_address=self.max_connections_per_client
        )
