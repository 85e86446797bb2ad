"""The controller in front of 5,000 nodes on a real API server."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import Any

from bench import needs
from bench.agent import resident_mib
from bench.disturbed_run import percentile
from bench.figure import Figure
from holdfast.adapters.kubernetes.client.api import Api, Patch
from holdfast.adapters.kubernetes.client.errors import Conflict
from holdfast.adapters.kubernetes.client.server import Server
from holdfast.adapters.kubernetes.client.values import compact_json
from holdfast.adapters.kubernetes.nodes.report_patch import node_patch
from holdfast.kit.free_ports import free_port
from holdfast.model.errors import BackendError
from holdfast.model.health import Fault, Remedy, Severity
from holdfast.model.names import RECORD, REPORT, Condition, HealthStatus, Labels, Reason
from holdfast.model.nodes import NodeRecord, Phase
from holdfast.model.report import NodeReport
from tests.engines.control_plane import CONTROLLERS, PROGRAMS, ControlPlane
from tools.control_plane import provide

NODES = 5_000
FAULTS = 40
AT_ONCE = 250
STARTS = 3
IDLE_S = 60.0
HEARTBEAT_S = 300.0
"""Every kubelet writes its node's status, changed or not, so often."""

NODES_PATH = "/api/v1/nodes"
CRD = Path(__file__).parents[1] / "deploy/helm/holdfast/crds/incidents.holdfast.dev.yaml"
LABELS = Labels()
WRITERS = 8

_CONFIG = """
[provider]
replace = "command"
[provider.command]
reboot = ["true"]
replace = ["true"]
"""
_TICKS = os.sysconf("SC_CLK_TCK")


def lacks() -> str:
    """What of a control plane cannot be had here."""
    return needs.control_plane("kubectl")


def run(*, quick: bool = False) -> list[Figure]:
    """Start a controller, let it idle, break nodes one by one, then many at once.

    The policy is the default one: 5 % of the nodes at once are within its budget of 20 % and far
    from the breaker's 50 %. The times begin when the first agent writes.
    """
    nodes, idle_s = (NODES // 10, IDLE_S / 6) if quick else (NODES, IDLE_S)
    at_once = AT_ONCE // 10 if quick else AT_ONCE
    names = [f"n{number}" for number in range(nodes)]
    slow = ["--node-monitor-period=5s"]  # its default; ours for tests would fill a core
    with (
        ControlPlane(provide(*PROGRAMS, "kubectl"), flags={CONTROLLERS: slow}) as plane,
        tempfile.TemporaryDirectory() as folder,
    ):
        fleet = Fleet(plane, Path(folder))
        fleet.create(names)
        starts = []
        for _ in range(STARTS - 1):
            with fleet.controller() as one:
                starts.append(one.start_s)
        with fleet.controller() as one:
            starts.append(one.start_s)
            started = resident_mib(one.pid)
            idle = one.cpu_percent(idle_s)
            with fleet.heartbeats(names):
                with_heartbeats = one.cpu_percent(idle_s)
            latencies = sorted(fleet.break_nodes([name]) * 1000 for name in names[:FAULTS])
            taken = fleet.break_nodes(names[FAULTS : FAULTS + at_once])
            resident = max(started, resident_mib(one.pid))
    count = f"{nodes:,} nodes"
    return [
        Figure(name=f"{count}: controller start to ready", value=median(starts), unit="s", goal=5),
        Figure(name=f"{count}: resident memory", value=resident, unit="MiB", goal=150),
        Figure(name=f"{count}: CPU while idle", value=idle, unit="%", goal=1),
        Figure(
            name=f"{count}: CPU with kubelets' heartbeats",
            value=with_heartbeats, unit="%", goal=1,
        ),
        Figure(
            name=f"{count}: fault to quarantine, p50",
            value=percentile(latencies, 0.5), unit="ms", goal=300,
        ),
        Figure(
            name=f"{count}: fault to quarantine, p99",
            value=percentile(latencies, 0.99), unit="ms", goal=300,
        ),
        Figure(
            name=f"{count}: {at_once} faults to last quarantine",
            value=taken, unit="s", goal=at_once / 100,
        ),
    ]  # fmt: skip


@dataclass
class Controller:
    """A controller process that manages the nodes."""

    pid: int
    start_s: float

    def cpu_percent(self, seconds: float) -> float:
        """Share of one core that it takes."""
        before = self._ticks()
        time.sleep(seconds)
        return 100 * (self._ticks() - before) / _TICKS / seconds

    def _ticks(self) -> int:
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2]
        return sum(int(field) for field in fields.split()[11:13])  # utime and stime


class Fleet:
    """Nodes with agents that are healthy, until they are broken."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self._plane = plane
        self._folder = folder
        server = Server(url=plane.url, ca_file=plane.certificate, token=lambda: plane.token)
        self._api = Api(server, user_agent="bench", field_manager="bench")
        self.apply(CRD)
        self._api.create("/api/v1/namespaces", {"metadata": {"name": "holdfast"}})

    def apply(self, file: Path) -> None:
        """Give a file to the API server."""
        kubectl = [
            str(provide("kubectl")["kubectl"]),
            "--kubeconfig",
            str(self._plane.kubeconfig()),
        ]
        applied = [*kubectl, "apply", "--server-side", "--filename", str(file)]
        subprocess.run(applied, check=True, stdout=subprocess.DEVNULL)

    def create(self, names: Sequence[str]) -> None:
        """Make the nodes as their kubelets, agents and an earlier controller leave them."""
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(lambda name: self._api.create(NODES_PATH, _node(name)), names))
        while any(node["spec"].get("taints") for node in self._api.list(NODES_PATH)):
            time.sleep(1)  # the node controller has not seen them all

    @contextmanager
    def controller(self) -> Iterator[Controller]:
        """A controller that is ready."""
        port = free_port()
        config = self._folder / "controller.toml"
        config.write_text(_CONFIG, encoding="utf-8")
        argv = [sys.executable, "-m", "holdfast", "controller", "--config", str(config),
                "--kubeconfig", str(self._plane.kubeconfig()), "--listen", str(port)]  # fmt: skip
        begun = time.perf_counter()
        with (self._folder / "log").open("wb") as log:
            process = subprocess.Popen(argv, stdout=log, stderr=log)
        try:
            while not _is_ready(port):
                if process.poll() is not None:
                    raise BackendError((self._folder / "log").read_text(encoding="utf-8"))
                time.sleep(0.01)
            yield Controller(process.pid, time.perf_counter() - begun)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()

    @contextmanager
    def heartbeats(self, names: Sequence[str]) -> Iterator[None]:
        """Every node's kubelet reports an unchanged status every five minutes."""
        over = Event()
        thread = Thread(target=self._send_heartbeats, args=(names, over))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _send_heartbeats(self, names: Sequence[str], over: Event) -> None:
        number = 0
        while not over.wait(HEARTBEAT_S / len(names)):
            condition = {"type": "Ready", "lastHeartbeatTime": _stamp()}
            path = f"{NODES_PATH}/{names[number % len(names)]}/status"
            self._api.patch(path, {"status": {"conditions": [condition]}}, Patch.STRATEGIC)
            number += 1

    def break_nodes(self, names: Sequence[str]) -> float:
        """Let the agents of nodes find a fault; seconds until a watch shows all quarantined."""
        patches = {name: self._fault_patch(name) for name in names}
        params: dict[str, str | int] = {}
        if len(names) == 1:
            params["fieldSelector"] = f"metadata.name={names[0]}"
        version = next(self._api.pages(NODES_PATH, {"limit": 1})).resource_version
        awaited = set(names)
        with (
            ThreadPoolExecutor(WRITERS) as pool,
            self._api.watch(NODES_PATH, {**params, "resourceVersion": version}) as watch,
        ):
            begun = time.perf_counter()
            for name, patch in patches.items():
                pool.submit(self.fault, name, patch)
            for event in watch:
                if _is_quarantined(event["object"]):
                    awaited.discard(event["object"]["metadata"]["name"])
                if not awaited:
                    break
            return time.perf_counter() - begun

    def fault(self, name: str, patch: dict[str, Any] | None = None) -> None:
        """Let the agent of a node find a fault, as ``patch`` if that was prepared."""
        try:
            self._api.patch(f"{NODES_PATH}/{name}", patch or self._fault_patch(name))
        except Conflict:  # as agents do
            self.fault(name)

    def _fault_patch(self, name: str) -> dict[str, Any]:
        """What the agent of a node writes when it finds a fault."""
        node = self._api.get(f"{NODES_PATH}/{name}")
        now = datetime.now(UTC)
        fault = Fault(
            family="xid",
            condition=Condition.NVIDIA_GPU_UNHEALTHY,
            reason=Reason.XID_REPLACE,
            severity=Severity.FATAL,
            remedy=Remedy.REPLACE,
            message="NVRM: Xid (PCI:0000:b9:00): 74, pid=<unknown>, name=<unknown>, NVLink error",
            since=now,
            seen_at=now,
            code=74,
            device="PCI:0000:b9:00",
        )
        patch = node_patch(node, _report(name, fault), LABELS)
        assert patch is not None
        return patch


def _is_quarantined(node: Mapping[str, Any]) -> bool:
    record = json.loads(node["metadata"]["annotations"][RECORD])
    return bool(record["phase"] != Phase.SCHEDULABLE)


def _is_ready(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _node(name: str) -> dict[str, Any]:
    """A node about as large as a kubelet's, with the 50 images that it reports at most."""
    record = NodeRecord(phase=Phase.SCHEDULABLE, phase_since=datetime.now(UTC))
    number = int(name.removeprefix("n"))
    labels = {
        **{f"example.com/label-{one}": "value" for one in range(20)},
        "kubernetes.io/hostname": name,
        "node.kubernetes.io/instance-type": "p5.48xlarge",
        "topology.kubernetes.io/zone": f"us-west-2{'abcd'[number % 4]}",
        LABELS.node_health_status: HealthStatus.SCHEDULABLE,
    }
    conditions = [
        {
            "type": kind, "status": status, "reason": "KubeletReady", "message": "as it should be",
            "lastHeartbeatTime": _stamp(), "lastTransitionTime": _stamp(),
        }
        for kind, status in _CONDITIONS.items()
    ]  # fmt: skip
    images = [
        {"names": [f"registry.example/team/image-{one}@sha256:{one:064x}"], "sizeBytes": 1 << 30}
        for one in range(50)
    ]
    resources = {"cpu": "192", "memory": "2Ti", "pods": "110", "nvidia.com/gpu": "8"}
    return {
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {RECORD: compact_json(record), REPORT: compact_json(_report(name))},
        },
        "spec": {"providerID": f"aws:///us-west-2a/i-{number:017x}"},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": conditions,
            "images": images,
            "nodeInfo": {**dict.fromkeys(_INFO, "-"), "bootID": _boot_id(name)},
        },
    }


def _report(name: str, *faults: Fault) -> NodeReport:
    return NodeReport(
        node=name,
        boot_id=_boot_id(name),
        sequence=1 + len(faults),
        reported_at=datetime.now(UTC),
        faults=faults,
    )


def _boot_id(name: str) -> str:
    return f"boot-of-{name}"


def _stamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_CONDITIONS = {
    "Ready": "True",
    **dict.fromkeys(("MemoryPressure", "DiskPressure", "PIDPressure"), "False"),
}
_INFO = (
    "machineID", "systemUUID", "kernelVersion", "osImage", "containerRuntimeVersion",
    "kubeletVersion", "kubeProxyVersion", "operatingSystem", "architecture",
)  # fmt: skip
