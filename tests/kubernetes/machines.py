"""A cluster at work: played kubelets, a real agent on each node, an owner of the machines, and real
controllers."""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from chart_roles import kubeconfig_of_controller
from controlled import GROUP, NAMESPACE, api_of
from real_cluster import Cluster, until

from holdfast.adapters.kubernetes.client.errors import NotFound
from holdfast.adapters.kubernetes.nodes.incidents import KubernetesIncidents
from holdfast.model.errors import BackendError
from holdfast.model.incidents import Incident
from holdfast.model.names import RECORD, Labels

HEALTH = Labels().node_health_status
XID = "NVRM: Xid (PCI:0000:b9:00): {}, pid=<unknown>, name=<unknown>, GPU has an error"
REPLACE_XID = XID.format(74)
REBOOT_XID = XID.format(73)

_ORDER = """
import json, os, sys
order = {key: os.environ["HOLDFAST_" + key.upper()] for key in ("action", "node", "token")}
order["refused"] = os.path.exists(sys.argv[2])
with open(sys.argv[1], "a", encoding="utf-8") as orders:
    orders.write(json.dumps(order) + chr(10))
if order["refused"]:
    sys.exit("the owner of the machines refuses")
"""
_QUICK_ELECTION = """
[kubernetes.election]
duration = "1500ms"
renew_deadline = "1s"
retry = "200ms"
"""


@dataclass
class Machine:
    """A node with its agent."""

    name: str
    group: str
    folder: Path
    agent: subprocess.Popen[bytes] | None = None
    lines: int = 0

    def log(self, message: str) -> None:
        self.lines += 1
        with (self.folder / "kmsg").open("a", encoding="utf-8") as kmsg:
            kmsg.write(f"4,{self.lines},{self.lines},-;{message}\n")

    def power_off(self) -> None:
        if self.agent is not None:
            self.agent.kill()
            self.agent.wait()
            self.agent = None


@dataclass
class Controller:
    """A real controller's process."""

    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8")

    @property
    def errors(self) -> str:
        return (self.folder / "errors").read_text(encoding="utf-8")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)


@dataclass
class Fleet:
    """Everything together."""

    cluster: Cluster
    folder: Path
    token_of: Callable[[str], str] | None = None
    """Gives the token of a node's agent; without it agents may do everything."""

    machines: dict[str, Machine] = field(default_factory=dict)
    controllers: list[Controller] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    """Tokens of the orders that were carried out."""

    carries_out: bool = True
    starts_agents: bool = True
    """Whether machines that come up have an agent."""

    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.api = api_of(self.cluster)
        self.incidents_seen: tuple[Incident, ...] = ()
        self._granted: tuple[str, Path] | None = None
        self._over = threading.Event()
        self.owner = threading.Thread(target=self._own, name="owner", daemon=True)

    # Machines

    @property
    def server(self) -> str:
        """URL at which agents find the API server."""
        return self.cluster.plane.url

    def start(self, *names: str, group: str = "p5", instances: Sequence[str] = ()) -> None:
        """Machines that are there from the beginning."""
        for name, instance in itertools.zip_longest(names, instances, fillvalue=""):
            self.join(name, group, instance)
        for name in names:
            until(lambda name=name: self.annotation(name, "holdfast.dev/report"))

    def new_name(self) -> str:
        return f"spare-{next(self.numbers)}"

    def join(self, name: str, group: str, instance: str = "") -> Machine:
        """A machine comes up."""
        folder = self.folder / name
        folder.mkdir()
        machine = Machine(name, group, folder)
        provider_id = f"aws:///us-west-2a/{instance or f'i-{uuid.uuid4().hex[:17]}'}"
        labels = {"kubernetes.io/os": "linux", **({GROUP: group} if group else {})}
        node = self.cluster.nodes.join(name, labels=labels, provider_id=provider_id)
        self.machines[name] = machine
        if self.starts_agents:
            self._boot(machine, node.status.nodeInfo.bootID)
        return machine

    def start_agent(self, name: str) -> None:
        """The agent of a machine is started, as by its DaemonSet, in the boot that it is in."""
        self._boot(self.machines[name], self.node(name)["status"]["nodeInfo"]["bootID"])

    def _boot(self, machine: Machine, boot_id: str) -> None:
        machine.lines = 0
        (machine.folder / "kmsg").write_bytes(b"")
        (machine.folder / "boot_id").write_text(f"{boot_id}\n", encoding="utf-8")
        config = machine.folder / "agent.toml"
        plane = self.cluster.plane
        token = plane.token if self.token_of is None else self.token_of(machine.name)
        (machine.folder / "token").write_text(token, encoding="utf-8")
        config.write_text(
            f"""
            kmsg = "{machine.folder}/kmsg"
            boot_id_file = "{machine.folder}/boot_id"
            report_dir = "{machine.folder}/run"
            log_files = []
            logs_only = true
            heartbeat = "100ms"
            [kubernetes]
            server = "{self.server}"
            ca_file = "{plane.certificate}"
            token_file = "{machine.folder}/token"
            """,
            encoding="utf-8",
        )
        with (machine.folder / "stderr").open("ab") as errors:
            machine.agent = subprocess.Popen(
                [sys.executable, "-m", "holdfast", "agent", "--config", config,
                 "--die-with-parent"],
                env={**os.environ, "NODE_NAME": machine.name},
                stderr=errors,
            )  # fmt: skip

    # The owner of the machines

    @property
    def orders(self) -> list[dict[str, Any]]:
        """What was ordered, repetitions included."""
        with suppress(FileNotFoundError):
            text = (self.folder / "orders").read_text(encoding="utf-8")
            return [json.loads(line) for line in text.splitlines()]
        return []

    def refuse(self) -> None:
        (self.folder / "refuses").touch()

    def accept(self) -> None:
        (self.folder / "refuses").unlink()

    def _own(self) -> None:
        while not self._over.wait(0.05):
            for order in self.orders if self.carries_out else ():
                if not order["refused"] and order["token"] not in self.done:
                    self.done.append(order["token"])
                    self._carry_out(order["action"], self.machines[order["node"]])

    def _carry_out(self, action: str, machine: Machine) -> None:
        if action == "reboot":
            machine.power_off()
            self.cluster.nodes.reboot(machine.name)
            node = self.api.get(f"/api/v1/nodes/{machine.name}")
            self._boot(machine, node["status"]["nodeInfo"]["bootID"])
            return
        self.leave(machine.name)
        self.join(self.new_name(), machine.group)

    def leave(self, name: str) -> None:
        """A machine is terminated, and its node goes with it."""
        self.machines.pop(name).power_off()
        self.cluster.nodes.leave(name)

    # Controllers

    def control(
        self,
        *,
        settings: str = "",
        provider: str = "",
        kubeconfig: Path | None = None,
        environment: Mapping[str, str] | None = None,
        election: str = _QUICK_ELECTION,
    ) -> Controller:
        """Another controller; without ``provider`` it orders from our own owner of machines.

        Without ``kubeconfig`` it has the permissions that the chart grants for its settings.
        """
        folder = self.folder / f"controller-{len(self.controllers)}"
        folder.mkdir()
        config = folder / "controller.toml"
        config.write_text(
            f"""
            {settings}
            {provider or self._command()}
            {election}
            """,
            encoding="utf-8",
        )
        known = kubeconfig or self._kubeconfig(config.read_text(encoding="utf-8"))
        argv = [sys.executable, "-m", "holdfast", "controller", "--config", config,
                "--kubeconfig", known, "--listen", "0"]  # fmt: skip
        with (folder / "log").open("wb") as log, (folder / "errors").open("wb") as errors:
            known_as = {**os.environ, **(environment or {})}
            process = subprocess.Popen(argv, stdout=log, stderr=errors, env=known_as)
        self.controllers.append(Controller(process, folder))
        return self.controllers[-1]

    def _kubeconfig(self, config: str) -> Path:
        """With the permissions of a configuration, which those of the last controller may be."""
        if self._granted is None or self._granted[0] != config:
            plane, helm = self.cluster.plane, self.cluster.binaries["helm"]
            self._granted = config, kubeconfig_of_controller(plane, helm, config)
        return self._granted[1]

    def _command(self) -> str:
        files = [str(self.folder / name) for name in ("orders", "refuses")]
        argv = json.dumps([sys.executable, "-c", _ORDER, *files])
        return f"""
            [provider]
            replace = "command"
            [provider.command]
            reboot = {argv}
            replace = {argv}
        """

    # What there is to see

    def node(self, name: str) -> dict[str, Any] | None:
        try:
            return self.api.get(f"/api/v1/nodes/{name}")
        except NotFound:
            return None

    def annotation(self, name: str, key: str) -> str | None:
        node = self.node(name)
        return None if node is None else (node["metadata"].get("annotations") or {}).get(key)

    def health(self, name: str) -> str | None:
        node = self.node(name)
        return None if node is None else node["metadata"]["labels"].get(HEALTH)

    def phase(self, name: str) -> str | None:
        text = self.annotation(name, RECORD)
        return None if text is None else str(json.loads(text)["phase"])

    def is_marked(self, name: str) -> bool:
        """Whether pods are kept off it, by our taint or by our cordon."""
        node = self.node(name)
        assert node is not None
        taints = [taint["key"] for taint in node["spec"].get("taints", ())]
        return HEALTH in taints or node["spec"].get("unschedulable", False)

    @property
    def incidents(self) -> tuple[Incident, ...]:
        return KubernetesIncidents(self.api).list_incidents()

    def until_schedulable(self, *names: str) -> None:
        for name in names:
            until(lambda name=name: self.phase(name) == "schedulable")

    def until_recovered(self, name: str) -> Incident:
        """Until the incident of a node has ended; returns it."""
        until(lambda: [one for one in self.incidents if one.node == name and one.ended_at])
        return next(one for one in self.incidents if one.node == name and one.ended_at)

    def tell(self) -> None:
        """Print what the last controllers said, for pytest to show with a failure."""
        for controller in self.controllers[-3:]:
            print(controller.log[-3000:], controller.errors[-1000:])  # noqa: T201
        print(self.orders[-3:], self.incidents_seen[-3:])  # noqa: T201

    def close(self) -> None:
        with suppress(BackendError):
            self.incidents_seen = self.incidents
        self._over.set()
        if self.owner.is_alive():
            self.owner.join()
        for controller in self.controllers:
            if controller.process.poll() is None:
                controller.kill()
        for machine in self.machines.values():
            machine.power_off()
        self.api.close()


F = TypeVar("F", bound=Fleet)


@contextmanager
def a_fleet(
    cluster: Cluster,
    folder: Path,
    token_of: Callable[[str], str] | None = None,
    *,
    kind: type[F] = Fleet,
) -> Iterator[F]:
    fleet = kind(cluster, folder, token_of)
    with suppress(Exception):
        fleet.api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    fleet.owner.start()
    try:
        yield fleet
    finally:
        fleet.close()
        fleet.tell()


def stays(condition: Any, seconds: float) -> None:
    """Fail unless it holds all the time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert condition()
        time.sleep(0.05)
