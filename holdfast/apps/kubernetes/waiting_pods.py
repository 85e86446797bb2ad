"""Connection to the pods and nodes of a Kubernetes cluster whose groups scale themselves."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from holdfast import __version__
from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.kubeconfig import find_server
from holdfast.adapters.kubernetes.jobs.pod_demand import PodsAndNodes

_CLIENT: Final = "holdfast-api"


def connect_pods(
    kubeconfig: Path | None, context: str | None, machine_id: Callable[[str], str]
) -> PodsAndNodes:
    """Connect to the cluster that kubectl would use.

    Raises:
        ConfigError: no cluster is configured, or it cannot be used.

    """
    server = find_server(kubeconfig, context or "")
    api = Api(server, user_agent=f"{_CLIENT}/{__version__}", field_manager=_CLIENT)
    return PodsAndNodes(api, machine_id)
