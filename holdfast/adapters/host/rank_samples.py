"""Samples what the main threads of ranks do, at a low rate and without pausing them.

One window is two recordings of py-spy of 20 seconds each: of all samples, and of those in which the
thread runs. One recording of a training process took 55 to 105 ms of CPU time at a load average of
10 on two CPUs, 0.3 to 0.5 % of a core, of which starting py-spy is 15 to 20 ms.

``python -m holdfast.adapters.host.rank_samples SECONDS NODE RANK:PID ...`` prints one window of
some ranks as JSON, with recordings of that duration. PID is the process that was started for the
rank.
"""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from holdfast.adapters.host.py_spy import NO_PY_SPY, py_spy
from holdfast.adapters.host.rank_stacks import NodeRanks, python_process, rank_processes
from holdfast.decisions.rank_snapshots import (
    Activity,
    Frame,
    RankSamples,
    RankSnapshot,
    activity,
)
from holdfast.kit.bounded_files import read_end
from holdfast.kit.serial import to_plain

RATE: Final = 12
"""Samples per second."""

SECONDS: Final = 20
"""Duration of one recording."""

_GRACE_S: Final = 60.0
"""Time beyond the duration for py-spy on a busy machine, where it has a low priority: 12 s at a
load average of 29 on two CPUs."""

_OPTIONS: Final = (
    "record", "--nonblocking", "--threads", "--full-filenames", "--function", "--rate", str(RATE),
    "--format", "raw",
)  # fmt: skip
_OUTPUT_BYTES: Final = 1 << 20
_NICENESS: Final = 10
_FRAME: Final = re.compile(r"^(.{1,200}?) \((.{1,500}?):(\d{1,9})\)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Samples of all ranks in one window."""

    ranks: tuple[RankSamples, ...] = ()
    note: str = ""
    """Why there are none; empty if there are some."""


def sample_ranks(nodes: Sequence[NodeRanks], folder: Path, seconds: int = SECONDS) -> Sampled:
    """Return the samples of one window; takes about 40 seconds.

    Args:
        nodes: nodes on this machine.
        folder: directory for the output of py-spy.
        seconds: duration of each of the two recordings.

    """
    found = rank_processes(nodes)
    if len(found) < 2:
        return Sampled(note="no samples: fewer than two ranks run on this machine")
    return _sample(found, folder, seconds)


def main(argv: Sequence[str]) -> int:
    """Print one window of ranks. Returns the exit status."""
    seconds, node, *ranks = argv
    pairs = [(int(rank), int(pid)) for rank, _, pid in (one.partition(":") for one in ranks)]
    found = [(rank, node, python_process(rank, pid)) for rank, pid in pairs]
    with TemporaryDirectory(prefix="holdfast-samples-") as folder:
        json.dump(to_plain(_sample(found, Path(folder), int(seconds))), sys.stdout)
    return 0


def _sample(found: Sequence[tuple[int, str, int]], folder: Path, seconds: int) -> Sampled:
    """Return the samples of one window of ranks, each with its node and its process."""
    program = py_spy()
    if program is None:
        return Sampled(note=NO_PY_SPY.replace("no stack", "no samples"))
    pids = [pid for _, _, pid in found]
    everything, why = _record((program, *_OPTIONS, "--idle"), pids, seconds, folder)
    if why:
        return Sampled(note=f"no samples: {why}")
    running, why = _record((program, *_OPTIONS), pids, seconds, folder)
    if why:
        return Sampled(note=f"no samples: {why}")
    return Sampled(
        ranks=tuple(
            RankSamples(
                rank=rank, node=node, all=everything[pid], running=running[pid],
                taken=RATE * seconds,
            )
            for rank, node, pid in found
        )
    )  # fmt: skip


def _record(
    command: Sequence[str], pids: Sequence[int], seconds: int, folder: Path
) -> tuple[dict[int, Counter[Activity]], str]:
    """Return the samples of each process, and why there are none."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        running = [
            _start((*command, "--duration", str(seconds), "--output", str(folder / str(pid)),
                    "--pid", str(pid)))
            for pid in pids
        ]  # fmt: skip
    except OSError as error:
        return {}, str(error)
    errors = [why for process in running if (why := _wait(process, seconds))]
    if errors:
        return {}, errors[0]
    return {pid: _counts(folder / str(pid), pid) for pid in pids}, ""


def _start(command: Sequence[str]) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process.pid, _NICENESS)
    return process


def _wait(process: subprocess.Popen[bytes], seconds: int) -> str:
    """Wait for the end of a recording; return why it failed, empty if it did not."""
    try:
        _, printed = process.communicate(timeout=seconds + _GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return "py-spy did not end"
    if process.returncode == 0:
        return ""
    lines = printed.decode("utf-8", "replace").strip().splitlines()
    return f"py-spy: {lines[0][:200] if lines else process.returncode}"


def _counts(file: Path, pid: int) -> Counter[Activity]:
    """Return the samples of the main thread of a process by activity."""
    counts: Counter[Activity] = Counter()
    with suppress(OSError):
        text = read_end(file, _OUTPUT_BYTES).decode("utf-8", "replace")
        file.unlink()
        for line in text.splitlines():
            stack, _, number = line.rpartition(" ")
            thread, *frames = stack.split(";")
            if thread.startswith(f"thread ({pid})") and number.isdecimal():
                counts[_activity(pid, frames)] += int(number)
    return counts


def _activity(pid: int, outermost_first: Sequence[str]) -> Activity:
    matches = [_FRAME.match(text) for text in reversed(outermost_first)]
    frames = [
        Frame(function=one[1], file=one[2], line=int(one[3])) for one in matches if one is not None
    ]
    return activity(RankSnapshot(rank=0, node="", pid=pid, frames=tuple(frames)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
