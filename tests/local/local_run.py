"""Drives ``holdfast run`` as a person would: in a process of its own, with a home of its own."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from holdfast.adapters.local.layout import RunDir
from holdfast.adapters.local.machine import MARK
from holdfast.adapters.local.store import LocalStore
from holdfast.kit.processes import is_alive
from tests.engines.waiting import Polling

DEADLINE_S = 600


class LocalRun:
    def __init__(self, home: Path, name: str = "job") -> None:
        self.home = home
        self.dir = RunDir(home / "runs" / name)
        self.name = name
        self.environment = {**os.environ, "HOLDFAST_HOME": str(home)}
        self.prefix: tuple[str, ...] = ()
        """Command that ``start`` runs ``holdfast`` with."""

        self.process: subprocess.Popen[str] | None = None

    def holdfast(
        self, *arguments: str, timeout: float = DEADLINE_S, **options
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "holdfast", *arguments],
            env=self.environment, capture_output=True, text=True, timeout=timeout, check=False,
            **options,
        )  # fmt: skip

    def run(self, *arguments: str, **options) -> subprocess.CompletedProcess[str]:
        """Run to the end; ``arguments`` are options, ``--`` and the command."""
        return self.holdfast("run", "--name", self.name, "--boot-time", "0s", *arguments, **options)

    def start(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [
                *self.prefix, sys.executable, "-m", "holdfast", "run", "--name", self.name,
                "--boot-time", "0s", *arguments,
            ],
            env=self.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def finish(self) -> tuple[int, str]:
        """Wait for the end: exit code and everything that was printed."""
        output, _ = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, output

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()
            self.process.wait()

    def store(self) -> LocalStore:
        return LocalStore(self.dir.state)

    def record(self):
        """The job's record; None before there is one."""
        if not self.dir.state.exists():
            return None
        store = self.store()
        try:
            jobs = store.jobs()
            return jobs[self.name][1] if self.name in jobs else None
        finally:
            store.close()

    def wait_until(self, what: str, condition) -> object:
        """Poll until ``condition()`` is true, and return what it gave."""
        polling = Polling()
        while not (found := condition()):
            if self.process is not None and self.process.poll() is not None:
                raise AssertionError(f"ended before {what}: {self.process.stdout.read()}")
            assert polling.pause() < DEADLINE_S, f"waited in vain for {what}: {self.record()}"
        return found

    def wait_for_attempt(self, attempt: int) -> None:
        """Until that attempt runs and each of its ranks has printed something."""

        def runs() -> bool:
            record = self.record()
            if record is None or record.attempt < attempt or record.phase != "running":
                return False
            return all(
                (log := self.dir.log(attempt, rank)).exists() and log.stat().st_size
                for rank in range(len(record.placement))
            )

        self.wait_until(f"attempt {attempt}", runs)

    def wait_for_spare(self) -> None:
        """Until every node of the run is schedulable."""

        def ready() -> bool:
            store = self.store()
            nodes = store.nodes()
            store.close()
            return bool(nodes) and all(node[2].phase == "schedulable" for node in nodes.values())

        self.wait_until("all nodes schedulable", ready)

    def machines(self) -> set[str]:
        """Every machine that there ever was in the run."""
        return {
            path.name.removeprefix("hyperpod-")
            for parent in (self.dir.nodes, self.dir.retired)
            for path in parent.glob("hyperpod-*")
        }

    def left_over(self) -> list[str]:
        """Command lines of processes of any machine of the run that still run."""
        marks = {f"{MARK}={machine}".encode() for machine in self.machines()}
        return [command for command in _command_lines(marks) if command]

    def wait_for_nothing_left(self) -> None:
        polling = Polling()
        while left := self.left_over():
            assert polling.pause() < DEADLINE_S, left

    def pids(self, node: str) -> dict[str, int]:
        """Role and process of what runs on a node."""
        try:
            noted = json.loads(self.dir.node(node).processes.read_text())
        except FileNotFoundError:
            return {}
        return {role: pid for role, (pid, started) in noted.items() if is_alive(pid, started)}


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    os.kill(pid, number)


def _command_lines(marks: set[bytes]) -> list[str]:
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            environment = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
            state = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[0]
            if marks.intersection(environment) and state != "Z":
                found.append(Path(f"/proc/{entry}/cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found
