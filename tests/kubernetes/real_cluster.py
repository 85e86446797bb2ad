"""What tests do with a real cluster, beside the requests of the client itself."""

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from lightkube import Client, KubeConfig

from tests.engines.control_plane import ControlPlane
from tests.engines.fake_nodes import FakeKubelets

TIMEOUT_S = 180
POLL_S = 0.02
LONGEST_POLL_S = 0.1
"""What takes long is looked at less often: each look costs the API server time, too."""


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


def until(condition: Callable[[], object]) -> None:
    """Wait until it holds; a test fails if it does not within three minutes."""
    deadline, pause_s = time.monotonic() + TIMEOUT_S, POLL_S
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(pause_s)
        pause_s = min(1.2 * pause_s, LONGEST_POLL_S)


def until_defined(kubectl: Sequence[str | Path], *definitions: str | Path) -> None:
    """Wait until kinds are served; kubectl gives up on one of which nothing is said yet."""
    wait = [*kubectl, "wait", "--for=condition=Established", "--timeout=5s", *definitions]
    until(lambda: subprocess.run(wait, check=False).returncode == 0)
