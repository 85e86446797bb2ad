"""Configuration file of ``holdfast controller``."""

from dataclasses import dataclass, field
from enum import StrEnum

from holdfast.adapters.kubernetes.settings import KubernetesSettings
from holdfast.adapters.notices.settings import NoticeSettings
from holdfast.adapters.providers.settings import ProviderConfig
from holdfast.adapters.slurm.settings import SlurmSettings
from holdfast.apps.listen_address import ListenAddress
from holdfast.decisions.policy import JobPolicy, RemediationPolicy


class PlatformName(StrEnum):
    """Platform of the cluster."""

    KUBERNETES = "kubernetes"
    """Kubernetes cluster."""

    SLURM = "slurm"
    """Slurm cluster."""


class LogFormat(StrEnum):
    """Format of the event log on standard output."""

    TEXT = "text"
    """One sentence per line."""

    JSON = "json"
    """One JSON object per line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """Controller of one cluster. Command-line options override the file."""

    platform: PlatformName = PlatformName.KUBERNETES
    """Platform of the cluster."""

    cluster: str = ""
    """Name of the cluster in metrics; if omitted, the kubeconfig's context or ``slurm``."""

    listen: ListenAddress | None = ListenAddress("127.0.0.1", 20258)
    """Address of ``/metrics``, ``/healthz`` and ``/readyz``; a port alone means the loopback
    address. The default port is one above the agent's."""

    probes: ListenAddress | None = None
    """Address of ``/healthz`` and ``/readyz`` alone, for probes: a flood of requests to ``listen``
    does not delay them. Default: not served."""

    log: LogFormat = LogFormat.TEXT
    """Format of the log."""

    nodes: RemediationPolicy = field(default_factory=RemediationPolicy)
    """When nodes are repaired, and how."""

    jobs: JobPolicy = field(default_factory=JobPolicy)
    """How jobs with auto-resume are resumed."""

    provider: ProviderConfig = field(default_factory=ProviderConfig)
    """How nodes are rebooted and replaced."""

    notices: NoticeSettings = field(default_factory=NoticeSettings)
    """Where events are sent in addition to the log."""

    kubernetes: KubernetesSettings = field(default_factory=KubernetesSettings)
    """Kubernetes cluster."""

    slurm: SlurmSettings | None = None
    """Slurm cluster."""
