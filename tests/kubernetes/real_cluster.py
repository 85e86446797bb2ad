"""What tests do with a real cluster, beside the requests of the client itself."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from lightkube import Client, KubeConfig

from tests.engines.control_plane import ControlPlane
from tests.engines.definitions import until_defined
from tests.engines.fake_nodes import FakeKubelets
from tests.engines.waiting import TIMEOUT_S, until

__all__ = [
    "TIMEOUT_S",
    "Cluster",
    "connect",
    "connected",
    "until",
    "until_defined",
]


@dataclass
class Cluster:
    """A control plane with nodes that are played."""

    plane: ControlPlane
    client: Client
    """Of the user who may do everything."""

    nodes: FakeKubelets
    binaries: Mapping[str, Path]

    def kubectl(self, *arguments: str) -> str:
        """What kubectl prints, as the user who may do everything."""
        return subprocess.run(
            [self.binaries["kubectl"], "--kubeconfig", self.plane.kubeconfig(), *arguments],
            check=True,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        ).stdout

    def client_of(self, namespace: str, account: str, *, pod: str | None = None) -> Client:
        """A client that may do what a service account may."""
        token = self.plane.service_account_token(namespace, account, pod=pod)
        return connect(self.plane.kubeconfig(account, token))


@contextmanager
def connected(plane: ControlPlane, binaries: Mapping[str, Path]) -> Iterator[Cluster]:
    with (
        closing(connect(plane.kubeconfig())) as client,
        FakeKubelets(plane.kubeconfig()) as nodes,
    ):
        yield Cluster(plane, client, nodes, binaries)


def connect(kubeconfig: Path) -> Client:
    return Client(KubeConfig.from_file(kubeconfig), trust_env=False)
