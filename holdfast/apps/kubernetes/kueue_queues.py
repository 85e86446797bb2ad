"""Connection to Kueue's queues in a Kubernetes cluster."""

from pathlib import Path
from typing import Final

from holdfast import __version__
from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.kubeconfig import find_server
from holdfast.adapters.kubernetes.jobs.team_queues import KueueQueues

_MANAGER: Final = "holdfast-api"
"""Field manager of the objects."""


def connect_queues(kubeconfig: Path | None, context: str | None) -> KueueQueues:
    """Connect to the cluster that kubectl would use.

    Raises:
        ConfigError: no cluster is configured, or it cannot be used.

    """
    server = find_server(kubeconfig, context or "")
    api = Api(server, user_agent=f"{_MANAGER}/{__version__}", field_manager=_MANAGER)
    return KueueQueues(api)
