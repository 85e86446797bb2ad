"""What ``holdfast controller --config FILE`` reads."""

from dataclasses import dataclass, field
from enum import StrEnum

from holdfast.adapters.kubernetes.settings import KubernetesSettings
from holdfast.adapters.notices.settings import NoticeSettings
from holdfast.adapters.providers.settings import ProviderConfig
from holdfast.adapters.slurm.settings import SlurmSettings
from holdfast.apps.listen_address import ListenAddress
from holdfast.decisions.policy import JobPolicy, RemediationPolicy


class PlatformName(StrEnum):
    """Whose nodes a controller looks after."""

    KUBERNETES = "kubernetes"
    """Those of a Kubernetes cluster."""

    SLURM = "slurm"
    """Those of a Slurm cluster."""


class LogFormat(StrEnum):
    """How the controller tells what happens on standard output."""

    TEXT = "text"
    """A sentence on a line."""

    JSON = "json"
    """A JSON object on a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """The controller of one cluster. The options of the command line win over the file."""

    platform: PlatformName = PlatformName.KUBERNETES
    """Whose nodes it looks after."""

    cluster: str = ""
    """The name of the cluster in metrics; that of the kubeconfig's context, or ``slurm``, if left
    out."""

    listen: ListenAddress | None = ListenAddress("127.0.0.1", 20258)
    """Where ``/metrics``, ``/healthz`` and ``/readyz`` are served; a port alone is one of the
    loopback address. One above the agent's."""

    log: LogFormat = LogFormat.TEXT
    """Format of the log."""

    nodes: RemediationPolicy = field(default_factory=RemediationPolicy)
    """When nodes are repaired, and how."""

    jobs: JobPolicy = field(default_factory=JobPolicy)
    """How jobs are resumed that ask for it."""

    provider: ProviderConfig = field(default_factory=ProviderConfig)
    """Who repairs them."""

    notices: NoticeSettings = field(default_factory=NoticeSettings)
    """Who else is told what happens."""

    kubernetes: KubernetesSettings = field(default_factory=KubernetesSettings)
    """The Kubernetes cluster."""

    slurm: SlurmSettings | None = None
    """The Slurm cluster."""
