"""The demo of restarts inside a job: a killed rank, a hung rank, and the loss of a node.

``holdfast launch`` runs on two nodes and a hot spare; each node is a tree of processes.
"""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from holdfast.apps.demo.demo import DemoSettings, command, final_weights, require
from holdfast.kit.free_ports import free_port
from holdfast.kit.processes import descendants
from holdfast.model.errors import BackendError
from holdfast.model.jobs import LAUNCH_KEY_VARIABLE

_NODES: Final = 2
_LAUNCHERS: Final = 3
_POLL_S: Final = 0.02
_LIMIT_S: Final = 600.0

_OPTIONS: Final = (
    "--lease-timeout", "2s", "--shutdown-timeout", "1s", "--hang-timeout", "3s",
    "--max-restarts", "5", "--join-timeout", "2m",
)  # fmt: skip
"""A hang is noticed after 3 s without a step; a step takes some milliseconds."""


class InJobFault(StrEnum):
    """Faults of this demo."""

    KILL = "rank killed"
    HANG = "rank hung"
    NODE = "node lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class InJobRecovery:
    """One fault and its recovery."""

    fault: InJobFault
    action: str
    """``in-place``, or ``spare`` if a hot spare took over the node."""

    down_s: float
    """Seconds from the fault to the next step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InJobResult:
    """Result of the demo."""

    ok: bool
    """Whether the job recovered from each fault as planned, and has the same weights."""

    steps: int
    final_sha256: str
    reference_sha256: str
    recoveries: tuple[InJobRecovery, ...]
    seconds: float


_PLAN: Final = (
    (InJobFault.KILL, "in-place"),
    (InJobFault.HANG, "in-place"),
    (InJobFault.NODE, "spare"),
)


def play_in_job(settings: DemoSettings, reported: Callable[[str], None]) -> InJobResult:
    """Run the job without faults, then with three faults, and compare.

    Raises:
        ConfigError: a library that the job needs is missing.
        BackendError: the job did not continue.

    """
    require("torch" if settings.use_torch else "numpy")
    begun = time.monotonic()
    reported("1. The job without faults.")
    folder = settings.home / "demo-in-job"
    reference = _Job(settings, folder / "reference").run(lambda _: None)
    reported(f"   weights {reference or 'missing: the job failed'}")
    reported("2. The same job with a killed rank, a hung rank and a lost node.")
    job = _Job(settings, folder / "faults")
    recoveries: list[InJobRecovery] = []

    def inject_faults(running: "_Job") -> None:
        for number, (fault, _) in enumerate(_PLAN, start=1):
            running.await_step(settings.steps * number // (len(_PLAN) + 1))
            recoveries.append(running.inject(fault))
            one = recoveries[-1]
            reported(f"   {fault}: {one.action}, next step after {one.down_s:.2f} s")

    final = job.run(inject_faults)
    planned = [action for _, action in _PLAN]
    return InJobResult(
        ok=final == reference != "" and [one.action for one in recoveries] == planned,
        steps=settings.steps,
        final_sha256=final,
        reference_sha256=reference,
        recoveries=tuple(recoveries),
        seconds=round(time.monotonic() - begun, 1),
    )


class _Job:
    def __init__(self, settings: DemoSettings, folder: Path) -> None:
        self._settings = replace(settings, use_torch=False)
        self._is_torch = settings.use_torch
        self._folder = folder
        self._nodes: list[subprocess.Popen[bytes]] = []
        self._progress = folder / "progress"
        self._log = folder / "launchers.log"

    def run(self, disturb: Callable[["_Job"], None]) -> str:
        """Run the job. Returns the SHA-256 of the weights; empty if it failed."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in [one for one in self._folder.rglob("*") if one.is_file()]:
            path.unlink()
        endpoint, key = f"127.0.0.1:{free_port()}", secrets.token_hex(32)
        with self._log.open("wb") as log:
            for rank in range(_LAUNCHERS):
                self._nodes.append(self._start(rank, endpoint, key, log.fileno()))
            try:
                disturb(self)
                self._nodes[0].wait(_LIMIT_S)
            except subprocess.TimeoutExpired:
                raise BackendError(f"the job did not end; see {self._log}") from None
            finally:
                for node in self._nodes:
                    node.terminate()
                for node in self._nodes:
                    node.wait()
        return final_weights(self._folder)

    def _start(self, rank: int, endpoint: str, key: str, log: int) -> subprocess.Popen[bytes]:
        meeting = ("--nnodes", f"{_NODES}:{_LAUNCHERS}", "--rdzv-endpoint", endpoint)
        trainer = "train_torch" if self._is_torch else "train_numpy"
        script = ("-m", f"holdfast.apps.demo.{trainer}", *command(self._settings)[3:])
        launch = (sys.executable, "-m", "holdfast", "launch", *meeting, "--node-rank", str(rank))
        names = {
            "HOLDFAST_CHECKPOINT_DIR": str(self._folder),
            "HOLDFAST_PROGRESS_FILE": str(self._progress),
            LAUNCH_KEY_VARIABLE: key,
        }
        return subprocess.Popen(
            [*launch, *_OPTIONS, *script],
            env={**os.environ, **names},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )

    def await_step(self, step: int) -> None:
        """Wait until a step is done."""
        self._until(lambda: self._last_step() >= step)

    def inject(self, fault: InJobFault) -> InJobRecovery:
        """Cause a fault on the node with node rank 1, and wait for the next step."""
        before, size = self._count("RoundStarted"), self._progress.stat().st_size
        node = self._second_node()
        began = time.monotonic()
        if fault is InJobFault.NODE:
            for pid in (node.pid, *descendants(node.pid)):
                _send(pid, signal.SIGKILL)
        else:
            signum = signal.SIGKILL if fault is InJobFault.KILL else signal.SIGSTOP
            _send(self._ranks(node)[0], signum)
        self._until(lambda: self._count("RoundStarted") > before)
        size = self._progress.stat().st_size
        # A resumed rank first reports the step that it continues from.
        self._until(lambda: self._lines_after(size) >= 2)
        return InJobRecovery(
            fault=fault, action=self._last_rung(), down_s=round(time.monotonic() - began, 3)
        )

    def _second_node(self) -> subprocess.Popen[bytes]:
        alive = [node for node in self._nodes[1:] if node.poll() is None]
        return next(node for node in alive if self._ranks(node))

    @staticmethod
    def _ranks(node: subprocess.Popen[bytes]) -> Sequence[int]:
        """Ranks of a node: below its guard and its launcher."""
        return descendants(node.pid)[1:]

    def _last_step(self) -> int:
        lines = self._progress.read_bytes().split() if self._progress.exists() else []
        return int(lines[-1]) if lines else 0

    def _lines_after(self, size: int) -> int:
        return self._progress.read_bytes()[size:].count(b"\n")

    def _count(self, event: str) -> int:
        return self._log.read_text(encoding="utf-8").count(f"holdfast: {event}")

    def _last_rung(self) -> str:
        text = self._log.read_text(encoding="utf-8")
        return text.rpartition("RanksRestarted: ")[2].split(":")[0].split(" ")[0]

    def _until(self, is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _LIMIT_S
        while not is_done():
            if time.monotonic() > deadline or self._nodes[0].poll() is not None:
                raise BackendError(f"the job did not continue; see {self._log}")
            time.sleep(_POLL_S)


def _send(pid: int, signum: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signum)
