"""Nodes that are network namespaces on one bridge, and kubelets that run checks inside them."""

import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from controlled import NAMESPACE, api_of
from lightkube import ApiError
from machines import Fleet

from holdfast.model.deep_checks import RESULT_VARIABLE
from holdfast.model.errors import BackendError

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
ADDRESS = "10.78.0.{}"


class Network:
    """A bridge in a namespace of its own, with a wire to each node."""

    def __init__(self, nodes: Sequence[str]) -> None:
        mark = secrets.token_hex(3)
        self.bridge = f"hf-{mark}-br"
        self.inside = {name: f"hf-{mark}-{number}" for number, name in enumerate(nodes, 1)}
        self.addresses = {name: ADDRESS.format(number) for number, name in enumerate(nodes, 1)}

    def build(self) -> None:
        call("ip", "netns", "add", self.bridge)
        call("ip", "-n", self.bridge, "link", "add", "br0", "type", "bridge")
        call("ip", "-n", self.bridge, "link", "set", "br0", "up")
        for number, (name, inside) in enumerate(self.inside.items(), 1):
            port = f"port{number}"
            call("ip", "netns", "add", inside)
            call("ip", "link", "add", "eth0", "netns", inside, "type", "veth",
                 "peer", "name", port, "netns", self.bridge)  # fmt: skip
            call("ip", "-n", self.bridge, "link", "set", port, "master", "br0", "up")
            address = f"{self.addresses[name]}/24"
            call("ip", "-n", inside, "addr", "add", address, "dev", "eth0")
            call("ip", "-n", inside, "link", "set", "eth0", "up")
            call("ip", "-n", inside, "link", "set", "lo", "up")

    def slow(self, node: str, mbit: int) -> None:
        """Let no more through what a node sends."""
        call("tc", "-n", self.inside[node], "qdisc", "replace", "dev", "eth0", "root", "tbf",
             "rate", f"{mbit}mbit", "burst", "64k", "latency", "100ms")  # fmt: skip

    def remove(self) -> None:
        for name in (*self.inside.values(), self.bridge):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def call(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)


class Kubelets:
    """Run the containers of checks as processes in the network of their nodes."""

    def __init__(self, fleet: Fleet, network: Network, folder: Path) -> None:
        self.fleet, self.network, self.folder = fleet, network, folder
        self.ran: list[tuple[str, str]] = []
        """The node and the Job of each."""

        self._over = threading.Event()
        self._thread = threading.Thread(target=self._play, daemon=True)
        self._thread.start()

    def _play(self) -> None:
        api, begun = api_of(self.fleet.cluster), set()
        with ThreadPoolExecutor(8) as pool:
            while not self._over.wait(0.1):
                try:
                    pods = list(api.list(PODS))
                except BackendError:
                    continue
                for pod in pods:
                    name = pod["metadata"]["name"]
                    is_running = (pod.get("status") or {}).get("phase") == "Running"
                    if is_running and name not in begun:
                        begun.add(name)
                        pool.submit(self._run, name, pod["spec"])
        api.close()

    def _run(self, pod: str, spec: dict[str, Any]) -> None:
        node = spec["nodeName"]
        [container] = spec["containers"]
        left = self.folder / f"{pod}.message"
        given = {one["name"]: one["value"] for one in container["env"]}
        is_networked = bool(spec.get("hostNetwork"))
        inside = ["ip", "netns", "exec", self.network.inside[node]] if is_networked else []
        self.ran.append((node, pod.rpartition("-")[0]))
        done = subprocess.run(
            [*inside, sys.executable, "-m", *container["command"]],
            env={**os.environ, **given, RESULT_VARIABLE: str(left)},
            capture_output=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )
        message = left.read_text(encoding="utf-8") if left.is_file() else done.stderr[-500:]
        with suppress(ApiError):  # its Job was deleted meanwhile
            self.fleet.cluster.nodes.finish(
                pod, namespace=NAMESPACE, exit_code=done.returncode, message=message
            )

    def close(self) -> None:
        self._over.set()
        self._thread.join()


def set_addresses(fleet: Fleet, network: Network) -> None:
    """What kubelets say of where their nodes are."""
    for name, address in network.addresses.items():
        status = {"addresses": [{"type": "InternalIP", "address": address}]}
        fleet.cluster.plane.request("PATCH", f"/api/v1/nodes/{name}/status", {"status": status})
