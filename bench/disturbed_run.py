"""A run of ``sleep`` on two of three local nodes, disturbed again and again."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast.adapters.local.layout import NodeDir, RunDir
from holdfast.adapters.local.store import LocalStore
from holdfast.model.nodes import Phase

CONFIG = """
[machines]
boot_time = "0s"
[jobs]
app_backoff = "0s"
failure_margin = "0s"
"""
"""Machines boot at once and restarts pause for nothing: what is left is Holdfast's own time."""

_POLL_S = 0.0005


@dataclass(frozen=True, slots=True)
class Round:
    """One disturbance. Durations in seconds."""

    decision_s: float
    """To the recorded decision to stop the attempt, with SIGTERM sent."""

    running_s: float
    """To all ranks of the next attempt launched."""


class DisturbedRun:
    """The run, and its events."""

    def __init__(self, process: subprocess.Popen[str], directory: RunDir) -> None:
        self.process = process
        self.directory = directory
        self._nodes: list[str] = []
        self._until("job.attempt_started")

    def disturb(self, fault: Callable[[NodeDir], object]) -> Round:
        """Bring ``fault`` on the node of rank 0 and wait for the next attempt."""
        node = self.directory.node(self._nodes[0])
        _wait_for_rank(node)
        at = datetime.now(UTC)
        fault(node)
        stopped, started = self._until("job.attempt_stopped"), self._until("job.attempt_started")
        return Round(_since(at, stopped), _since(at, started))

    def wait_for_nodes(self) -> None:
        """Until every node is schedulable again."""
        store = LocalStore(self.directory.state)
        while not all(record.phase is Phase.SCHEDULABLE for _, _, record in store.nodes().values()):
            time.sleep(_POLL_S)
        store.close()

    def _until(self, name: str) -> datetime:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event: dict[str, Any] = json.loads(line)
            if event["event"] == name:
                self._nodes = event.get("nodes") or self._nodes
                return datetime.fromisoformat(event["at"])
        raise RuntimeError(f"the run ended before {name}")


@contextmanager
def disturbed_run() -> Iterator[DisturbedRun]:
    """Start the run; it is ended with the block."""
    with tempfile.TemporaryDirectory() as home:
        config = Path(home) / "config.toml"
        config.write_text(CONFIG, encoding="utf-8")
        process = subprocess.Popen(
            [
                sys.executable, "-m", "holdfast", "run", "--name", "bench",
                "--nodes", "2", "--spares", "1", "--config", str(config), "--output", "json",
                "--max-retries", "1000000", "--max-app-retries", "1000000", "--", "sleep", "600",
            ],
            env={**os.environ, "HOLDFAST_HOME": home}, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            yield DisturbedRun(process, RunDir(Path(home) / "runs" / "bench"))
        finally:
            process.terminate()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def percentile(values: list[float], share: float) -> float:
    """The value that ``share`` of all values do not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def _wait_for_rank(node: NodeDir) -> None:
    """A launch is an order: the process exists a moment after it."""
    while True:
        try:
            noted = json.loads(node.processes.read_text(encoding="utf-8"))
        except FileNotFoundError:
            noted = {}
        if "task" in noted:
            return
        time.sleep(_POLL_S)


def _since(start: datetime, end: datetime) -> float:
    return (end - start).total_seconds()
