"""From the death of a rank to the end of the other one, which its launcher stops.

The ranks do nothing and end at once on any signal: what is left is the time in which a launcher
notices that a rank has ended, and acts. The ranks that follow are not waited for.
"""

import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from bench.disturbed_run import percentile
from bench.figure import Figure
from bench.restart import lacks  # noqa: F401 - it installs the same launchers
from bench.restart_launchers import LAUNCHERS, Launcher, install
from holdfast.kit.processes import descendants, send

BY_NAME_ONLY = "it installs other launchers"
SAMPLES: Final = 20
SCRIPT: Final = Path(__file__).with_name("_waiting_ranks.py")
_HOLDFAST: Final = "holdfast launch"
_GOAL_S: Final = 0.05
"""Half of the interval in which torchrun looks at its ranks."""

_LIMIT_S: Final = 120.0
_POLL_S: Final = 0.01


def run(*, quick: bool = False, samples: int = 0) -> list[Figure]:
    """Kill a rank ``samples`` times under each launcher that can be installed."""
    count = samples or (3 if quick else SAMPLES)
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        for one in LAUNCHERS:
            if one.starts_nodes or "--warm" in one.options:
                continue
            try:
                seconds = _measured(install(one, Path(folder)), Path(folder, "notes"), count)
            except (RuntimeError, TimeoutError) as error:
                print(f"not measured: {error}", file=sys.stderr)
                continue
            goal = _GOAL_S if one.name == _HOLDFAST else None
            name = f"{one.name}, rank killed to the other one ended"
            high = percentile(seconds, 0.95)
            figures += [
                Figure(name=f"{name}, median of {count}", value=1000 * statistics.median(seconds),
                       unit="ms", goal=goal and 1000 * goal),
                Figure(name=f"{name}, p95", value=1000 * high, unit="ms", goal=None),
            ]  # fmt: skip
    print(f"load average of the last minute: {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    return figures


def _measured(launcher: Launcher, notes: Path, count: int) -> list[float]:
    """Return the seconds of each sample.

    Raises:
        TimeoutError: ranks were not started, or not stopped.

    """
    notes.write_text("", encoding="ascii")
    options = (*launcher.options, "--nproc-per-node", "2")
    process = subprocess.Popen(
        [*launcher.program, *options, str(SCRIPT), str(notes)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    seconds: list[float] = []
    try:
        while len(seconds) < count:
            seconds.append(_sample(launcher, notes, len(seconds)))
    finally:
        for pid in (process.pid, *descendants(process.pid)):
            send(pid, signal.SIGKILL)
        process.wait()
    return seconds


def _sample(launcher: Launcher, notes: Path, done: int) -> float:
    deadline = time.monotonic() + _LIMIT_S
    while len(lines := notes.read_text(encoding="ascii").splitlines()) < 2 * (done + 1):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{launcher.name}: no ranks within {_LIMIT_S:.0f} s")
        time.sleep(_POLL_S)
    pids = {int(rank): int(pid) for pid, rank in (line.split() for line in lines[-2:])}
    ended = os.pidfd_open(pids[0])
    try:
        time.sleep(_POLL_S * (1 + done % 10))  # at any point of a peer's interval
        at = time.monotonic()
        os.kill(pids[1], signal.SIGKILL)
        if not select.select([ended], [], [], _LIMIT_S)[0]:
            raise TimeoutError(f"{launcher.name}: the other rank was not stopped")
        return time.monotonic() - at
    finally:
        os.close(ended)
