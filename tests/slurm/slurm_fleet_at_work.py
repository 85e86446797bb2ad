"""A Slurm cluster at work: a real agent on each node, and real controllers."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

import pytest

from holdfast.adapters.slurm.nodes.state import FILE, SlurmStore
from holdfast.model.errors import BackendError
from holdfast.model.incidents import Incident
from holdfast.model.nodes import NodeRecord
from tests.effort import is_quick
from tests.engines.slurm_cluster import SlurmCluster
from tests.engines.slurm_machine import Machine
from tools.slurm_versions import NEWEST, VERSION

Test = TypeVar("Test", bound=Callable[..., None])


def on_both_versions(test: Test) -> Test:
    """Run a test on the Slurm of this machine and on the newer one; on one of them if quick.

    Which one depends on the name of the test, so that each version runs about half of them.
    """
    versions = ["installed", VERSION]
    if is_quick():
        versions = [versions[crc32(test.__name__.encode()) % len(versions)]]
    return pytest.mark.parametrize("programs", versions, indirect=True)(test)


on_newest_version = pytest.mark.parametrize("programs", [NEWEST], indirect=True)
"""One that runs on the newest Slurm alone: it needs 25.11, or is a smoke test of that release."""

on_newer_version = pytest.mark.parametrize("programs", [VERSION], indirect=True)
"""One that runs on the newer Slurm alone, as what it shows is not there before."""

XID = "NVRM: Xid (PCI:0000:b9:00): {}, pid=1, name=python, something"
REPLACE_XID = XID.format(74)
REBOOT_XID = XID.format(73)

BY_SLURM = """
[provider]
replace = "slurm-power"
reboot = "slurm-reboot"
"""
_ORDER = """
import os, pathlib, signal, sys
order = [os.environ["HOLDFAST_" + name] for name in ("ACTION", "NODE", "TOKEN")]
with open(sys.argv[1], "a", encoding="utf-8") as orders:
    orders.write(" ".join(order) + chr(10))
kills = pathlib.Path(sys.argv[1]).with_name("kill-controller")
if kills.exists():
    kills.unlink()
    os.kill(os.getppid(), signal.SIGKILL)
"""

_DCGMI = """\
#!/bin/sh
[ "$1" = policy ] || exit 1
while [ ! -e {folder}/ecc ]; do sleep 0.2; done
rm {folder}/ecc
echo 'Timestamp: Thu Nov 20 12:00:00 2025'
echo 'A double-bit ECC error has violated policy manager values.'
echo 'DBE error count: 1'
sleep 3600
"""


@dataclass
class Controller:
    """A real controller's process."""

    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def log(self) -> str:
        texts = [(self.folder / name).read_text(encoding="utf-8") for name in ("log", "errors")]
        return "".join(texts)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """It does nothing meanwhile, and afterwards finds all that has happened."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)


class Fleet:
    """Everything together."""

    def __init__(self, slurm: SlurmCluster, folder: Path, *, dcgm: str = "") -> None:
        """A fleet; the node ``dcgm`` has DCGM, and its agent reads that alone."""
        self.slurm = slurm
        self._dcgm = dcgm
        self.machines = slurm.machines
        self.folder = folder
        self.shared = folder / "shared"
        self.shared.mkdir()
        self.state_dir = folder / "state"
        self.tools = ""
        """Where controllers look for programs first."""
        self.controllers: list[Controller] = []

    # Nodes

    def start_agents(self) -> None:
        for machine in self.machines.values():
            machine.on_boot["agent"] = self._agent
            if machine.is_on:
                machine.start("agent", self._agent(machine))
        on = [one for one in self.machines.values() if one.is_on]
        self.until(lambda: len([*self.shared.glob("node*.json")]) == len(on))

    def has_reported(self, node: str, reason: str) -> bool:
        """Whether the present report of the agent of a node holds a fault of that reason."""
        return reason in (self.shared / f"{node}.json").read_text(encoding="utf-8")

    def break_memory(self) -> None:
        """Let DCGM tell of an error in the memory of a GPU of its node."""
        (self.folder / "ecc").touch()

    def _sources(self, machine: Machine) -> str:
        if machine.name != self._dcgm:
            return "logs_only = true"
        program = self.folder / "bin/dcgmi"
        program.parent.mkdir(exist_ok=True)
        program.write_text(_DCGMI.format(folder=self.folder), encoding="utf-8")
        program.chmod(0o755)
        return f'command_path = "{program.parent}"'

    def _agent(self, machine: Machine) -> Sequence[str | Path]:
        config = machine.root / "agent.toml"
        config.write_text(
            f"""
            node = "{machine.name}"
            root = "{machine.root}"
            report_dir = "{machine.root}/run"
            log_files = []
            {self._sources(machine)}
            heartbeat = "100ms"
            [slurm]
            report_dir = "{self.shared}"
            heartbeat = "200ms"
            """,
            encoding="utf-8",
        )
        conf = f"SLURM_CONF={self.slurm.conf}"
        return ["env", conf, sys.executable, "-m", "holdfast", "agent", "--config", config]

    def scontrol(self, *arguments: str) -> str:
        return self.slurm.run("scontrol", *arguments)

    def update(self, node: str, **changes: str) -> None:
        self.scontrol("update", f"nodename={node}", *(f"{k}={v}" for k, v in changes.items()))

    def reason(self, node: str) -> str:
        return self.slurm.node(node)["Reason"]

    def is_idle(self, node: str) -> bool:
        return self.slurm.state(node) == {"IDLE"}

    # Controllers

    def control(
        self,
        *,
        nodes: str = "",
        slurm: str = "",
        provider: str = BY_SLURM,
        drain: str = "20s",
        unavailable: int = 2,
        wait: bool = True,
        launcher: Sequence[str] = (),
    ) -> Controller:
        """Start a controller, by ``launcher`` if that is given."""
        folder = self.folder / f"controller-{len(self.controllers)}"
        folder.mkdir()
        config = folder / "controller.toml"
        config.write_text(
            f"""
            platform = "slurm"
            [nodes]
            drain_timeout = "{drain}"
            max_unavailable = {unavailable}
            {nodes}
            [slurm]
            report_dir = "{self.shared}"
            state_dir = "{self.state_dir}"
            conf = "{self.slurm.conf}"
            poll = "300ms"
            {slurm}
            {provider}
            """,
            encoding="utf-8",
        )
        argv = [*launcher, sys.executable, "-m", "holdfast", "controller", "--config", config,
                "--listen", "0"]  # fmt: skip
        path = f"{self.tools}:{self.slurm.environment['PATH']}"
        environment = {**os.environ, "PATH": path}
        with (folder / "log").open("wb") as log, (folder / "errors").open("wb") as errors:
            process = subprocess.Popen(argv, stdout=log, stderr=errors, env=environment)
        self.controllers.append(Controller(process, folder))
        if wait:
            names = list(self.machines)
            self.until(lambda: all(self.phase(name) == "schedulable" for name in names))
        return self.controllers[-1]

    def by_command(self) -> str:
        """The provider that has the machines of the cluster repaired by a command."""
        argv = json.dumps([sys.executable, "-c", _ORDER, str(self.folder / "orders")])
        return f"""
            [provider]
            replace = "command"
            [provider.command]
            reboot = {argv}
            replace = {argv}
        """

    @property
    def orders(self) -> list[list[str]]:
        """Action and node of each order that the command received."""
        return [line[:2] for line in self._orders()]

    @property
    def tokens(self) -> list[str]:
        """The token of each order that the command received."""
        return [line[2] for line in self._orders()]

    def kill_controller_at_next_order(self) -> None:
        """Let the command kill the controller before that learns that the order was accepted."""
        (self.folder / "kill-controller").touch()

    def _orders(self) -> list[list[str]]:
        path = self.folder / "orders"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        return [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]

    # What there is to see

    def store(self) -> SlurmStore:
        return SlurmStore(self.state_dir / FILE)

    def record(self, node: str) -> NodeRecord | None:
        if not (self.state_dir / FILE).exists():
            return None
        try:
            with closing(self.store()) as store:
                known = store.read().nodes.get(node)
        except BackendError:
            return None
        return None if known is None else known.record

    def phase(self, node: str) -> str:
        record = self.record(node)
        return "" if record is None else str(record.phase)

    @property
    def incidents(self) -> tuple[Incident, ...]:
        store = self.store()
        try:
            return store.list_incidents()
        finally:
            store.close()

    def until(self, is_done: Callable[[], Any]) -> None:
        self.slurm.until(is_done)

    def until_recovered(self, node: str) -> Incident:
        """Until the incident of a node has ended and jobs can be placed there; returns it."""
        self.until(lambda: [one for one in self.incidents if one.node == node and one.ended_at])
        self.until(lambda: not self.slurm.state(node) & {"FAIL", "DRAIN", "DOWN"})
        return next(one for one in self.incidents if one.node == node and one.ended_at)

    def run_job(self, *options: str, script: str = "srun sleep 600") -> str:
        job = self.slurm.submit(*options, script=script)
        self.until(lambda: self.slurm.jobs()[job] == "RUNNING")
        return job

    def close(self) -> None:
        for controller in self.controllers:
            if controller.process.poll() is None:
                controller.kill()


def stays(condition: Callable[[], Any], seconds: float) -> None:
    """Fail unless it holds all the time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert condition()
        time.sleep(0.05)


@contextmanager
def a_fleet(slurm: SlurmCluster, folder: Path, *, dcgm: str = "") -> Iterator[Fleet]:
    """A fleet with an agent on each node of the cluster; ends with its controllers."""
    fleet = Fleet(slurm, folder, dcgm=dcgm)
    fleet.start_agents()
    try:
        yield fleet
    finally:
        fleet.close()
