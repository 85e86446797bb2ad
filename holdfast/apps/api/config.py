"""Configuration file of ``holdfast api``."""

import os
import stat
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final

from holdfast.adapters.providers.machine_group_settings import Ec2GroupSettings
from holdfast.api.identity import AccessKey
from holdfast.api.oidc_settings import OidcSettings
from holdfast.api.script_sources import EXPECTED, source_parts
from holdfast.apps.api.kubernetes_endpoint import KubernetesEndpoint
from holdfast.apps.api.networks import ProxyNetwork, is_loopback
from holdfast.apps.api.tls import TlsFiles
from holdfast.apps.listen_address import ListenAddress
from holdfast.decisions.cluster_policy import ClusterPolicy
from holdfast.kit.config import load_config
from holdfast.kit.connections import ConnectionLimits
from holdfast.kit.ranges import require_longer_than_zero
from holdfast.model.errors import ConfigError

DEFAULT_LISTEN: Final = ListenAddress("127.0.0.1", 8470)
DEFAULT_URL: Final = f"http://{DEFAULT_LISTEN}"


class AlarmSource(StrEnum):
    """Source of alarms."""

    NONE = "none"
    CLOUDWATCH = "cloudwatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiConfig:
    """Settings of the API: listen address, access keys, region and account."""

    keys: tuple[AccessKey, ...]
    """Access keys of the API. ``holdfast api --new-key ROLE --out FILE`` creates one. Only the
    owner of the file may have access to it (mode 0600)."""

    listen: ListenAddress = DEFAULT_LISTEN
    """Listen address. The default is reachable from this machine only; any other address
    requires ``tls`` or ``behind_proxy``."""

    tls: TlsFiles | None = None
    """Certificate and private key of the server. Renewed files are used for new connections."""

    behind_proxy: tuple[ProxyNetwork, ...] = ()
    """IP addresses or networks of reverse proxies that terminate TLS. Only their
    ``X-Forwarded-For`` and ``X-Forwarded-Proto`` are used, and without ``tls`` no other machine is
    served."""

    region: str = "us-east-1"
    """Region that clients must set; part of every ARN."""

    account: str = "000000000000"
    """Account ID, twelve digits; part of every ARN."""

    name: str = ""
    """Name of the Kubernetes or Slurm cluster. Default: derived from its address."""

    kubernetes: KubernetesEndpoint | None = None
    """Kubernetes API server for clients of EKS, such as ``hyp`` and ``aws eks``, with ``--platform
    kubernetes``. Requires ``name``."""

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
    all clients of a reverse proxy or an SSH tunnel share one, and so are those of
    ``behind_proxy``."""

    script_sources: tuple[str, ...] | None = None
    """Where lifecycle scripts of created clusters may come from: ``s3://BUCKET[/PATH]``,
    ``file:///PATH`` or ``/PATH``, and everything below. Default: anywhere."""

    oidc: OidcSettings | None = None
    """Login to the console through an OpenID Connect provider, beside the tokens of keys."""

    audit_log: Path | None = None
    """File for one JSON line per requested change. At 10 MB it is renamed; ten files are kept.
    Default: ``audit.jsonl`` beside the runs of this machine."""

    alarms: AlarmSource = AlarmSource.NONE
    """Source of the alarms that roll back a software update: ``cloudwatch``, or none."""

    checkpoint_mirror: str = ""
    """Location for copies of the checkpoints of clusters with ``TieredStorageConfig``: an absolute
    path, ``s3://BUCKET/PREFIX`` or a URL of fsspec. Each cluster gets a directory with its ID."""

    ec2: Ec2GroupSettings | None = None
    """Settings of EC2 Auto Scaling groups. If set, instance groups of created clusters become
    Auto Scaling groups whose machines join the served cluster; if not, groups consist of existing
    nodes."""

    scale_down_after: timedelta = ClusterPolicy().scale_down_after
    """Time for which a node must be idle before ``AutoScaling`` removes it."""

    def __post_init__(self) -> None:
        require_longer_than_zero(self, "scale_down_after")
        if self.node_limit < 0:
            raise ValueError(f"node_limit must be 0 or more, got {self.node_limit}")
        for name in ("max_connections", "max_connections_per_client"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, got {getattr(self, name)}")
        if len(self.account) != 12 or not self.account.isdecimal():
            raise ValueError(f"account must be twelve digits, got {self.account!r}")
        self._refuse_sources()
        if self.kubernetes is not None and not self.name:
            raise ValueError("name is required with kubernetes: clients select the cluster by name")
        ids = [key.access_key_id for key in self.keys]
        if not ids:
            raise ValueError(
                "keys must contain at least one key; create one with: holdfast api --new-key"
            )
        if twice := {one for one in ids if ids.count(one) > 1}:
            raise ValueError(f"keys must have different ids, got {sorted(twice)} twice")
        tokens = [key.token_sha256 for key in self.keys if key.token_sha256]
        if len(set(tokens)) < len(tokens):
            raise ValueError("keys must have different tokens, got one twice")

    def refuse_readable(self) -> None:
        """Refuse to serve plain HTTP to other machines.

        Raises:
            ConfigError: the address would do so.

        """
        if self.tls is None and not self.behind_proxy and not is_loopback(self.listen.host):
            raise ConfigError(
                f"listen: {self.listen} is reachable from other machines, and requests would be "
                "readable on the network; set [tls] with certificate and key, or behind_proxy "
                "(--behind-proxy) to the address of a proxy that terminates TLS"
            )

    def _refuse_sources(self) -> None:
        if self.script_sources == ():
            raise ValueError(
                "script_sources is an empty list, which permits no source; name the permitted "
                "sources, or remove the line to permit all"
            )
        for one in self.script_sources or ():
            if source_parts(one) is None:
                raise ValueError(f"script_sources: expected {EXPECTED}, got {one!r}")

    @property
    def url(self) -> str:
        """URL of the server on this machine."""
        return f"{'http' if self.tls is None else 'https'}://{self.listen}"

    @property
    def connection_limits(self) -> ConnectionLimits:
        """Limits of the open connections."""
        return ConnectionLimits(
            total=self.max_connections, per_address=self.max_connections_per_client
        )


def load_api_config(path: Path) -> ApiConfig:
    """Read the configuration file, which contains secrets.

    Raises:
        ConfigError: the file cannot be read or is invalid, or others may read or change it.

    """

    def check(status: os.stat_result) -> str:
        if stat.S_ISREG(status.st_mode) and status.st_mode & 0o077:
            mode = stat.S_IMODE(status.st_mode)
            return f"contains keys and has mode {mode:04o}, expected 0600; run: chmod 600 {path}"
        if status.st_uid not in (0, os.geteuid()):
            return (
                f"contains keys and belongs to user {status.st_uid}, expected this user "
                f"({os.geteuid()}) or root; change its owner"
            )
        return ""

    return load_config(path, ApiConfig, check=check)
