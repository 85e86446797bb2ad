"""Labels and taints that an instance group requests for its Kubernetes nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """Taint of a Kubernetes node. A node has at most one of a key and an effect."""

    key: str
    effect: str
    """``NoSchedule``, ``PreferNoSchedule`` or ``NoExecute``."""

    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesConfig:
    """Labels and taints of a node."""

    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there are neither labels nor taints."""
        return not self.labels and not self.taints


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """Labels and taints of a node that its instance group requests, and their state."""

    owned: KubernetesConfig = field(default_factory=KubernetesConfig)
    """Those that the cluster API has set, or is about to set: recorded before they are written.
    Others, even with the requested value, belong to somebody else and are never changed."""

    current: KubernetesConfig = field(default_factory=KubernetesConfig)
    """Those on the node, as far as they are requested or owned."""

    conflict: str = ""
    """Why a requested one is not applied; empty if all are or will be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsChange:
    """Change of the labels and taints of one node."""

    machine: str
    """Id of the machine of the node. The provider of machines may have another name for it."""

    labels: Mapping[str, str | None] = field(default_factory=dict)
    """New values by key; None removes the label."""

    taints: tuple[Taint, ...] = ()
    """Taints to set; one of the same key and effect gets the value."""

    removed_taints: tuple[Taint, ...] = ()
    """Taints to remove, whatever their value."""
