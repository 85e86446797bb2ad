"""Port of the labels and taints of Kubernetes nodes."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from holdfast.model.node_settings import KubernetesConfig, SettingsChange


class KubernetesNodes(Protocol):
    """Nodes of the Kubernetes cluster. Every method may raise ``BackendError``."""

    def settings(self) -> Mapping[str, KubernetesConfig]:
        """Return all labels and taints of each node, by the id of its machine."""
        ...

    def configure(self, changes: Sequence[SettingsChange]) -> None:
        """Change labels and taints; others on the nodes stay.

        A machine without a node is skipped. The other nodes are changed even if one cannot be.
        """
        ...
