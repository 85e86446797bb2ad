"""1,000 kill-and-resume rounds, and what they leave behind."""

import os
from pathlib import Path

from bench.disturbed_run import DisturbedRun, disturbed_run
from bench.figure import Figure
from holdfast.adapters.local.faults import kill_rank
from holdfast.kit.processes import descendants

BY_NAME_ONLY = "it takes minutes; make soak"
ROUNDS = 1000
_WARM_UP = 20
"""Rounds after which everything that is made once has been made."""


def run() -> list[Figure]:
    """Count processes, file descriptors and listening ports before and after."""
    with disturbed_run() as one:
        for _ in range(_WARM_UP):
            one.disturb(kill_rank)
        before = _held(one)
        for _ in range(ROUNDS):
            one.disturb(kill_rank)
        after = _held(one)
        last = one.process.pid
    names = ("processes", "file descriptors", "listening TCP ports")
    figures = [
        Figure(name=f"{name} leaked in {ROUNDS} rounds", value=max(0, new - old), unit="", goal=0)
        for name, old, new in zip(names, before, after, strict=True)
    ]
    left = len(descendants(last))
    return [*figures, Figure(name="processes left at the end", value=left, unit="", goal=0)]


def _held(one: DisturbedRun) -> tuple[int, int, int]:
    """Processes, file descriptors and listening ports of the run and all below it."""
    root = one.process.pid
    processes = [root, *descendants(root)]
    # A rank is launched a moment after its attempt: count what is there for good.
    names = [Path(f"/proc/{pid}/comm").read_text(encoding="utf-8") for pid in processes]
    lasting = [pid for pid, name in zip(processes, names, strict=True) if name != "sleep\n"]
    descriptors = sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in lasting)
    return len(lasting), descriptors, _listening()


def _listening() -> int:
    lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    return sum(line.split()[3] == "0A" for line in lines)  # TCP_LISTEN in the kernel's tcp_states.h
