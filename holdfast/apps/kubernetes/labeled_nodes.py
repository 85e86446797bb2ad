"""Connection to the labels and taints of the nodes of a Kubernetes cluster."""

from collections.abc import Callable
from pathlib import Path

from holdfast import __version__
from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.kubeconfig import find_server
from holdfast.adapters.kubernetes.nodes.group_settings import LabeledNodes

_MANAGER = "holdfast-api"
"""Field manager of the labels and taints, another than that of the controller and of commands."""


def connect_labeled_nodes(
    kubeconfig: Path | None, context: str | None, machine_id: Callable[[str], str]
) -> LabeledNodes:
    """Connect to the cluster that kubectl would use.

    Raises:
        ConfigError: no cluster is configured, or it cannot be used.

    """
    server = find_server(kubeconfig, context or "")
    api = Api(server, user_agent=f"{_MANAGER}/{__version__}", field_manager=_MANAGER)
    return LabeledNodes(api, machine_id)
