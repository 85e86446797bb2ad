"""A training job under one launcher, whose ranks and nodes are lost."""

import os
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.disturbed_run import CONFIG
from bench.restart_launchers import Launcher, python_of
from holdfast.adapters.local.faults import power_off, powered_processes
from holdfast.adapters.local.layout import NodeDir, RunDir
from holdfast.kit.free_ports import free_port
from holdfast.kit.processes import descendants, send

SCRIPT: Final = Path(__file__).with_name("_gpt_steps.py")
TIMEOUT_S: Final = 200
_QUIET_S: Final = 2.0
_QUIET_SHARE: Final = 0.3
"""Share of a CPU below which everything but the ranks has settled."""

_POLL_S: Final = 0.02
_KEY: Final = "a key of this benchmark only"


class JobEnded(Exception):
    """The job did not continue after a fault, or did not start."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step that a rank has done, and when by the monotonic clock."""

    pid: int
    rank: int
    at: float


class TrainingJob:
    """Two ranks: on one node, or on two nodes with a third one."""

    def __init__(self, launcher: Launcher, folder: Path, *, has_nodes: bool) -> None:
        self._launcher = launcher
        self._folder = folder
        self._has_nodes = has_nodes
        self._port = free_port()
        self._nodes: list[subprocess.Popen[bytes]] = []
        self._started = 0

    def start(self) -> None:
        """Start the launchers, and settle.

        Raises:
            JobEnded: as ``settle``.

        """
        for _ in range(3 if self._has_nodes and not self._launcher.starts_nodes else 1):
            self._add_node()
        self.settle()

    def settle(self) -> None:
        """Wait until both ranks do steps and all other processes use almost no CPU.

        Raises:
            JobEnded: a launcher ended, or that took too long.

        """
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            before, at = self._cpu_s(), time.monotonic()
            time.sleep(_QUIET_S)
            share = (self._cpu_s() - before) / (time.monotonic() - at)
            recent = {step.rank for step in self._steps() if step.at > at + _QUIET_S / 2}
            if len(recent) > 1 and share < _QUIET_SHARE:
                return
            self._check(deadline)

    def at_rest(self, seconds: float) -> tuple[float, float]:
        """Memory (PSS, MiB) and CPU (share of one) of all processes but the ranks."""
        before, at = self._cpu_s(), time.monotonic()
        time.sleep(seconds)
        share = (self._cpu_s() - before) / (time.monotonic() - at)
        return sum(map(_pss_mib, self._others())), share

    def kill_rank(self) -> float:
        """Send SIGKILL to rank 1; return the seconds until the first step of a new process."""
        victim = self._rank_1()
        return self._measured(lambda: send(victim, 9))

    def lose_node(self) -> float:
        """End all processes of a node; return the seconds until the first step of a new process.

        The launchers do not meet on that node. Another node joins afterwards.
        """
        if self._launcher.starts_nodes:
            node = self._node_of(self._rank_1())
            return self._measured(lambda: power_off(node))
        ranks = {step.pid for step in self._steps()}
        lost = next(one for one in self._nodes[1:] if ranks & set(descendants(one.pid)))
        hit = [lost.pid, *descendants(lost.pid)]
        self._nodes.remove(lost)
        seconds = self._measured(lambda: [send(pid, 9) for pid in hit])
        lost.wait()
        self._add_node()
        return seconds

    def close(self) -> None:
        """End all processes."""
        pids = [pid for one in self._nodes for pid in (one.pid, *descendants(one.pid))]
        for pid in pids:
            send(pid, 9)
        for one in self._nodes:
            one.wait()

    def _add_node(self) -> None:
        launcher, number = self._launcher, self._started
        if launcher.starts_nodes:
            config = self._folder / "config.toml"
            config.write_text(CONFIG, encoding="utf-8")
            spares = "1" if self._has_nodes else "0"
            where = ["--nodes", "2", "--spares", spares, "--config", str(config)]
            where += ["--", python_of(launcher)]
        elif self._has_nodes:
            endpoint = f"127.0.0.1:{self._port}"
            where = ["--nnodes", "2:3", "--rdzv-endpoint", endpoint, "--rdzv-id", "bench"]
            where += ["--node-rank", str(number)] if launcher.needs_node_rank else []
        else:
            where = ["--nproc-per-node", "2"]
        command = [*launcher.program, *launcher.options, *where, str(SCRIPT), str(self._folder)]
        home = {"HOLDFAST_HOME": str(self._folder), "HOLDFAST_LAUNCH_KEY": _KEY}
        with open(self._folder / "log", "ab") as log:
            self._nodes.append(
                subprocess.Popen(
                    command, env={**os.environ, **home, "OMP_NUM_THREADS": "1"},
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                )
            )  # fmt: skip
        self._started += 1
        if self._started == 1 and self._has_nodes and not launcher.starts_nodes:
            self._wait_for_port()

    def _wait_for_port(self) -> None:
        """The others meet on the first node: whoever opens the port has the store of the job."""
        deadline = time.monotonic() + TIMEOUT_S
        while not _accepts(self._port):
            self._check(deadline)
            time.sleep(_QUIET_S / 10)

    def _measured(self, fault: Callable[[], object]) -> float:
        old = {step.pid for step in self._steps()}
        at = time.monotonic()
        fault()
        while True:
            new = [step.at for step in self._steps() if step.pid not in old]
            if new:
                return min(new) - at
            self._check(at + TIMEOUT_S)
            time.sleep(_POLL_S)

    def _check(self, deadline: float) -> None:
        ended = [one.returncode for one in self._nodes if one.poll() is not None]
        if ended or time.monotonic() > deadline:
            log = (self._folder / "log").read_text(encoding="utf-8", errors="replace")
            why = f"exit codes {ended}" if ended else "timed out"
            raise JobEnded(f"{self._launcher.name}: {why}: {log[-600:]}")

    def _steps(self) -> list[Step]:
        try:
            text = (self._folder / "steps").read_text(encoding="ascii")
        except FileNotFoundError:
            return []
        lines = [line.split() for line in text.splitlines()[-_RECENT:]]
        return [Step(int(one[0]), int(one[1]), float(one[3])) for one in lines if len(one) == 4]

    def _rank_1(self) -> int:
        return [step.pid for step in self._steps() if step.rank == 1][-1]

    def _node_of(self, rank: int) -> NodeDir:
        run = RunDir(self._folder / "runs" / "bench")
        nodes = [run.node(path.name) for path in run.nodes.iterdir()]
        return next(one for one in nodes if powered_processes(one).get("task") == rank)

    def _others(self) -> list[int]:
        ranks = {step.pid for step in self._steps()}
        pids = [pid for one in self._nodes for pid in (one.pid, *descendants(one.pid))]
        return [pid for pid in pids if pid not in ranks]

    def _cpu_s(self) -> float:
        return sum(map(_cpu_s_of, self._others()))


_RECENT: Final = 4000
"""Lines of the last minutes: a rank does at most 20 steps in a second."""


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def _cpu_s_of(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def _pss_mib(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            found = next(line for line in file if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return 0.0
    return int(found.split()[1]) / 1024
