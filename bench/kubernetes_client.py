"""Our Kubernetes client beside lightkube: CPU, memory and bytes of each call."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

from bench import needs
from bench.figure import Figure
from holdfast.adapters.kubernetes.client.api import Api, Server
from holdfast.model.names import RECORD
from tests.engines.control_plane import PROGRAMS, ControlPlane
from tools.control_plane import provide

BY_NAME_ONLY = "it compares clients and has no goal"

NODES = 5_000
CALLS = 500

HOLDFAST = """
from pathlib import Path
from holdfast.adapters.kubernetes.client.api import Api, Server

api = Api(
    Server(url=url, ca_file=Path(ca_file), token=lambda: token),
    user_agent="bench", field_manager="bench",
)
get = lambda: api.get("/api/v1/nodes/n0")
patch = lambda: api.patch("/api/v1/nodes/n0", CHANGE)
each = lambda: api.list("/api/v1/nodes")
"""

LIGHTKUBE = """
from lightkube import Client, KubeConfig
from lightkube.config.kubeconfig import Cluster, User
from lightkube.resources.core_v1 import Node
from lightkube.types import PatchType

cluster = Cluster(server=url, certificate_auth=ca_file)
config = KubeConfig.from_one(cluster=cluster, user=User(token=token))
client = Client(config, trust_env=False, field_manager="bench")
get = lambda: client.get(Node, "n0")
patch = lambda: client.patch(Node, "n0", CHANGE, patch_type=PatchType.MERGE)
each = lambda: client.list(Node, chunk_size=500)
"""

MEASURE = """
import json, resource, sys, time

url, ca_file, token, calls = sys.argv[1:]
CHANGE = {{"metadata": {{"annotations": {{"holdfast.dev/record": "r" * 500}}}}}}
def memory(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))
{client}
def measure(what, call, times):
    begun = time.process_time()
    for _ in range(times):
        call()
    used = (time.process_time() - begun) / times * 1000
    print(json.dumps([what, used, memory("VmHWM")]), flush=True)
    sys.stdin.readline()

measure("first GET", get, 1)
measure("GET", get, int(calls))
measure("PATCH", patch, int(calls))
measure("list of all nodes", lambda: sum(1 for _ in each()), 1)
"""


def lacks() -> str:
    """What of a control plane cannot be had here."""
    return needs.control_plane()


def run(*, quick: bool = False) -> list[Figure]:
    """GET and PATCH one node many times, then list all; the goal is what lightkube takes."""
    nodes, calls = (NODES // 10, CALLS // 10) if quick else (NODES, CALLS)
    with ControlPlane(provide(*PROGRAMS)) as plane:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda number: _create(plane, number), range(nodes)))
        _patch_once(plane)
        relay = Relay(plane.port)
        goals = dict(_measured(LIGHTKUBE, plane, relay, calls))
        measured = dict(_measured(HOLDFAST, plane, relay, calls))
    return [
        Figure(name=what, value=value, unit=unit, goal=goals[what, unit])
        for (what, unit), value in measured.items()
    ]


class Relay:
    """Counts the bytes between a client and the API server."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._listener.getsockname()[1]}"
        self.bytes = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            inner, _ = self._listener.accept()
            outer = socket.create_connection(("127.0.0.1", self._port))
            for pair in ((inner, outer), (outer, inner)):
                threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self.bytes += len(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


def _create(plane: ControlPlane, number: int) -> None:
    """Make a node about as large as a kubelet's, with the 50 images that it reports at most."""
    images = [
        {"names": [f"registry.example/team/image-{one}@sha256:{one:064x}"], "sizeBytes": 1 << 30}
        for one in range(50)
    ]
    metadata = {"name": f"n{number}", "labels": {f"x.io/label-{one}": "v" for one in range(20)}}
    plane.request("POST", "/api/v1/nodes", {"metadata": metadata, "status": {"images": images}})


def _patch_once(plane: ControlPlane) -> None:
    """So that the node is equally large for both."""
    server = Server(url=plane.url, ca_file=plane.certificate, token=lambda: plane.token)
    api = Api(server, user_agent="bench", field_manager="bench")
    api.patch("/api/v1/nodes/n0", {"metadata": {"annotations": {RECORD: "r" * 500}}})
    api.close()


def _measured(
    client: str, plane: ControlPlane, relay: Relay, calls: int
) -> Iterator[tuple[tuple[str, str], float]]:
    """What was measured and its unit, and the value; bytes and CPU for one call."""
    arguments = [relay.url, str(plane.certificate), plane.token, str(calls)]
    with _process(MEASURE.format(client=client), arguments) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for line in child.stdout:
            what, cpu_ms, memory_mib = json.loads(line)
            many = calls if what in ("GET", "PATCH") else 1
            yield (f"{what}, CPU", "ms"), cpu_ms
            yield (f"{what}, traffic", "KiB"), relay.bytes / many / 1024
            yield (f"{what}, memory at most", "MiB"), memory_mib
            relay.bytes = 0
            child.stdin.write("\n")
            child.stdin.flush()


@contextmanager
def _process(program: str, arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ) as child:
        yield child
