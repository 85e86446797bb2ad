"""The agent on a real API server: how soon a node is marked, and what TLS weighs."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import needs
from bench.agent import resident_mib
from bench.disturbed_run import percentile
from bench.figure import Figure
from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.server import Server
from holdfast.model.names import Labels
from tests.engines.control_plane import PROGRAMS, ControlPlane
from tools.control_plane import provide

LINES = 200
NODE = "bench"
HEALTH = Labels().node_health_status
_PATH = f"/api/v1/nodes/{NODE}"


def lacks() -> str:
    """What of a control plane cannot be had here."""
    return needs.control_plane()


def run() -> list[Figure]:
    """Append kernel lines, each for another GPU, and watch for the label and the taint."""
    with (
        ControlPlane(provide(*PROGRAMS)) as plane,
        tempfile.TemporaryDirectory() as name,
    ):
        plane.request("POST", "/api/v1/nodes", {"metadata": {"name": NODE}})
        plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": "holdfast"}})
        server = Server(url=plane.url, ca_file=plane.certificate, token=lambda: plane.token)
        api = Api(server, user_agent="bench", field_manager="bench")
        with agent_process(Path(name), plane) as process:
            latencies = sorted(_marked_ms(api, Path(name), number) for number in range(LINES))
            resident = resident_mib(process.pid)
    return [
        Figure(
            name="kernel line to label and taint, p99",
            value=percentile(latencies, 0.99), unit="ms", goal=150,
        ),
        Figure(name="resident memory of the agent with TLS", value=resident, unit="MiB", goal=35),
    ]  # fmt: skip


@contextmanager
def agent_process(directory: Path, plane: ControlPlane) -> Iterator[subprocess.Popen[bytes]]:
    """A running agent that reports to ``NODE``; returns when it has done so."""
    (directory / "boot_id").write_text("boot\n", encoding="utf-8")
    (directory / "token").write_text(plane.token, encoding="utf-8")
    (directory / "kmsg").touch()
    config = directory / "agent.toml"
    config.write_text(
        f'kmsg = "{directory}/kmsg"\n'
        f'boot_id_file = "{directory}/boot_id"\n'
        f'report_dir = "{directory}"\n'
        f'log_files = []\n[kubernetes]\nserver = "{plane.url}"\n'
        f'ca_file = "{plane.certificate}"\ntoken_file = "{directory}/token"\n',
        encoding="utf-8",
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "agent", "--config", str(config)],
        env={**os.environ, "NODE_NAME": NODE},
    )
    try:
        while "annotations" not in plane.request("GET", _PATH)["metadata"]:
            time.sleep(0.01)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _marked_ms(api: Api, directory: Path, number: int) -> float:
    """Time until a watch shows the marks; then a person takes them away."""
    version = api.get(_PATH)["metadata"]["resourceVersion"]
    params = {"resourceVersion": version, "fieldSelector": f"metadata.name={NODE}"}
    device = f"{number // 32:04x}:{number % 32:02x}:00"
    line = f"4,{number},{number},-;NVRM: Xid (PCI:{device}): 79, GPU has fallen off the bus.\n"
    with api.watch("/api/v1/nodes", params) as watch:
        start = time.perf_counter()
        with (directory / "kmsg").open("a", encoding="utf-8") as kmsg:
            kmsg.write(line)
        next(event for event in watch if _is_marked(event["object"]))
        taken = time.perf_counter() - start
    time.sleep(0.05)  # the conditions and the event are still on their way
    api.patch(_PATH, {"metadata": {"labels": {HEALTH: None}}, "spec": {"taints": None}})
    return taken * 1000


def _is_marked(node: Mapping[str, Any]) -> bool:
    labels, taints = node["metadata"].get("labels", ()), node["spec"].get("taints", ())
    return HEALTH in labels and any(taint["key"] == HEALTH for taint in taints)
