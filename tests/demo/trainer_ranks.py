"""Starts the ranks of a training job as `holdfast run` does, and watches them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from holdfast.kit.processes import descendants, send
from tests.engines.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 120.0


class Attempt:
    """One start of all node ranks."""

    def __init__(
        self,
        directory: Path,
        command: list[str],
        *,
        nodes: int = 2,
        attempt: int = 1,
        port: int | None = None,
        rank_1_options: tuple[str, ...] = (),
    ) -> None:
        self.directory = directory
        self.progress_file = directory / f"progress-{attempt}"
        directory.mkdir(parents=True, exist_ok=True)
        port = port or free_port()
        self.processes = [
            self._start(
                [*command, *(rank_1_options if rank == 1 else ())], rank, nodes, attempt, port
            )
            for rank in range(nodes)
        ]

    def _start(
        self, command: list[str], rank: int, nodes: int, attempt: int, port: int
    ) -> subprocess.Popen[bytes]:
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "WORLD_SIZE": str(nodes),
            "RANK": str(rank),
            "PET_NNODES": str(nodes),
            "PET_NODE_RANK": str(rank),
            "PET_NPROC_PER_NODE": "1",
            "PET_MASTER_ADDR": "127.0.0.1",
            "PET_MASTER_PORT": str(port),
            "HOLDFAST_ATTEMPT": str(attempt),
            "HOLDFAST_CHECKPOINT_DIR": str(self.directory / "checkpoints"),
            "HOLDFAST_PROGRESS_FILE": str(self.progress_file),
        }
        with (
            (self.directory / f"out-{attempt}-{rank}").open("wb") as out,
            (self.directory / f"err-{attempt}-{rank}").open("wb") as err,
        ):
            return subprocess.Popen(
                command,
                env=environment,
                cwd=self.directory,
                stdout=out,
                stderr=err,
            )

    def __enter__(self) -> "Attempt":
        return self

    def __exit__(self, *_: object) -> None:
        self.signal(signal.SIGKILL, *range(len(self.processes)))
        for process in self.processes:
            process.wait()

    def signal(self, number: int, *ranks: int) -> None:
        """Send a signal to all of some nodes: torchrun starts its workers in own sessions."""
        nodes = [self.processes[rank].pid for rank in ranks if self.processes[rank].poll() is None]
        # Found before the first is sent: one node's end must not come before the other's signal.
        for pid in [pid for node in nodes for pid in (node, *descendants(node))]:
            send(pid, number)

    def step(self) -> int:
        """The last step reported; -1 before the first report."""
        try:
            return int(self.progress_file.read_text().split()[-1])
        except (FileNotFoundError, IndexError):
            return -1

    def wait_for_step(self, step: int) -> None:
        end = time.monotonic() + DEADLINE_S
        while self.step() < step:
            codes = [process.poll() for process in self.processes]
            assert codes == [None] * len(codes), (codes, self.errors())
            assert time.monotonic() < end, f"stuck at step {self.step()}: {self.errors()}"
            time.sleep(0.002)

    def exit_codes(self) -> list[int]:
        return [process.wait(DEADLINE_S) for process in self.processes]

    def _read(self, kind: str) -> list[str]:
        attempt = self.progress_file.name.removeprefix("progress-")
        return [
            (self.directory / f"{kind}-{attempt}-{rank}").read_text()
            for rank in range(len(self.processes))
        ]

    def errors(self) -> list[str]:
        """What each rank wrote to its standard error."""
        return self._read("err")

    def outputs(self) -> list[str]:
        return self._read("out")


def numpy_command(*options: str) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "holdfast.apps.demo.train_numpy", *options]


def final(directory: Path) -> dict[str, object]:
    return json.loads((directory / "checkpoints" / "final.json").read_text())


def checkpoints(directory: Path) -> list[Path]:
    """Oldest first."""
    return sorted((directory / "checkpoints").glob("step-*.ckpt"))
