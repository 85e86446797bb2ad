"""The way of providers to the clusters of kubeconfig files."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from holdfast.adapters.kubernetes.client.api import Api, Server
from holdfast.adapters.kubernetes.client.kubeconfig import find_server
from holdfast.apps.controller.kubernetes_calls import Clusters


def _call(server: Server) -> Api:
    return Api(server, user_agent="test", field_manager="test")


@contextmanager
def clusters(kubeconfig: Path) -> Iterator[Clusters]:
    """That of ``kubeconfig`` is the one with the nodes."""
    with closing(_call(find_server(kubeconfig))) as own:
        yield Clusters(own, _call)
