"""Loads processors, memory and disk with ``stress-ng``, or ``stress`` if only that is installed."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

from holdfast.adapters.host.commands import Result
from holdfast.adapters.host.deep_checks.contract import (
    CheckCommand,
    CommandResult,
    Skip,
    Target,
    missing_tool,
)
from holdfast.adapters.host.small_files import read_small
from holdfast.detectors.judgement import undecided
from holdfast.detectors.load_tests import judge_stress
from holdfast.detectors.thresholds import Thresholds, shortfalls

MEMORY_SHARE: Final = 0.6
"""Share of the available memory; other processes of the node must not be OOM-killed."""

FILE_BYTES: Final = 256 << 20
"""Bytes written to the disk and read back, past the page cache; fewer if time is short."""

BYTES_PER_SECOND: Final = 64 << 20
"""Approximate rate at which one worker writes and verifies: in memory with the slowest method of
stress-ng, on a disk with half of the rate of gp3. A worker with more data than it can process in
its time completes no round and verifies nothing."""

_GRACE: Final = timedelta(seconds=60)
"""Time after the test for releasing memory and removing files."""

Rates = Callable[[str], Mapping[str, float]]


def processors(target: Target) -> CheckCommand | Skip:
    """Load all processors with matrix products whose results are verified."""
    count = str(_processors())
    return _plan(
        target,
        ("--cpu", count, "--cpu-method", "matrixprod", "--verify"),
        ("--cpu", count),
        rates=partial(_rounds, "cpu", "cpu_ops_per_s"),
    )


def memory(target: Target) -> CheckCommand | Skip:
    """Write and verify as much of the free memory as the time allows."""
    free = free_memory(target.machine.root)
    if free is None:
        return Skip(why="available memory cannot be read")
    workers = _processors()
    each = min(
        int(free * MEMORY_SHARE / workers),
        int(BYTES_PER_SECOND * target.stress_time.total_seconds()),
    )
    hogs = ("--vm", str(workers), "--vm-bytes")
    return _plan(
        target,
        (*hogs, str(workers * each), "--verify"),  # stress-ng divides it, stress does not
        (*hogs, str(each)),
        rates=partial(_rounds, "vm", "memory_ops_per_s"),
    )


def disk(target: Target) -> CheckCommand | Skip:
    """Write a file and read it back; a disk on which that hangs is stalled."""
    try:
        room = os.statvfs(target.disk)
    except OSError as error:
        return Skip(why=f"{target.disk}: {error.strerror}")
    if room.f_bavail * room.f_frsize < 2 * FILE_BYTES:
        return Skip(why=f"{target.disk} has less than {2 * FILE_BYTES >> 20} MiB free")
    size = min(FILE_BYTES, int(BYTES_PER_SECOND * target.stress_time.total_seconds()))
    hogs = ("--hdd", "1", "--hdd-bytes", str(size))
    return _plan(
        target,
        (*hogs, "--hdd-opts", "direct", "--temp-path", ".", "--verify"),
        hogs,
        rates=_disk_rates,
        directory=target.disk,
        if_hung=f"writing to {target.disk} hung: the disk stalls",
    )


def free_memory(root: Path) -> int | None:
    """Return the available bytes: of the machine, or of the control group if that is less."""
    lines = (read_small(root / "proc/meminfo") or "").splitlines()
    fields = [line.split() for line in lines if line.startswith("MemAvailable:")]
    limits = [int(row[1]) * 1024 for row in fields if len(row) > 1 and row[1].isdigit()]
    group = root / "sys/fs/cgroup"
    limit, used = (read_small(group / f"memory.{name}") or "" for name in ("max", "current"))
    if limit.isdigit() and used.isdigit():
        limits.append(max(0, int(limit) - int(used)))
    return min(limits, default=None)


def _processors() -> int:
    return len(os.sched_getaffinity(0))


def _plan(
    target: Target,
    hogs: Sequence[str],
    old_hogs: Sequence[str],
    *,
    rates: Rates,
    directory: Path | None = None,
    if_hung: str = "",
) -> CheckCommand | Skip:
    """Return a plan with ``stress-ng`` and ``hogs``, or with ``stress`` and ``old_hogs``."""
    seconds = max(1, round(target.stress_time.total_seconds()))
    program, options = target.machine.find("stress-ng"), (*hogs, "--metrics")
    if program is None:
        program, options = target.machine.find("stress"), tuple(old_hogs)
    if program is None:
        return missing_tool("stress-ng", "stress")
    return CheckCommand(
        argv=(program, *options, "--timeout", str(seconds)),
        takes=timedelta(seconds=seconds),
        timeout=timedelta(seconds=seconds) + _GRACE,
        judge=partial(_judge, seconds, rates, target.thresholds),
        directory=directory,
        if_hung=if_hung,
    )


def _judge(
    seconds: int, rates: Rates, thresholds: Thresholds, result: Result, now: datetime
) -> CommandResult:
    text = result.stdout + result.stderr
    judgement = judge_stress(text, now, seconds=seconds)
    if result.status and not judgement.findings and not judgement.undecided:
        judgement = undecided(f"exited with {result.status} after it had reported success")
    every = rates(text)
    measured = {name: rate for name, rate in every.items() if rate}
    is_slow = bool(shortfalls(measured, thresholds))  # too slow to have had time for the rest
    if len(measured) < len(every) and not judgement.findings and not is_slow:
        judgement = undecided("no round completed; increase the time with --stress-time")
    return CommandResult(judgement=judgement, measured=measured)


def _rounds(stressor: str, name: str, text: str) -> dict[str, float]:
    rate = rounds_per_s(text, stressor)
    return {} if rate is None else {name: rate}


def _disk_rates(text: str) -> dict[str, float]:
    return {f"disk_{way}_mb_per_s": rate for way, rate in disk_rates(text).items()}


_NUMBER: Final = r"[0-9]{1,15}(?:\.[0-9]{1,9})?"
_PREFIX: Final = r"^stress-ng: (?:metrc|info): +\[[0-9]+\] "
_ROUNDS: Final = re.compile(
    rf"{_PREFIX}(?P<name>[a-z0-9-]{{1,30}}) +[0-9]{{1,18}}(?: +{_NUMBER}){{3}} +"
    rf"(?P<rate>{_NUMBER}) +{_NUMBER}\b",
    re.M,
)
_DISK: Final = re.compile(
    rf"{_PREFIX}hdd +(?P<rate>{_NUMBER}) MB/sec (?P<way>read|write) rate", re.M
)


def rounds_per_s(text: str, stressor: str) -> float | None:
    """Return rounds per second of real time of all workers of a stressor; None if missing."""
    rates = {row["name"]: float(row["rate"]) for row in _ROUNDS.finditer(text)}
    return rates.get(stressor)


def disk_rates(text: str) -> dict[str, float]:
    """Return MB per second, ``read`` and ``write`` if present: the mean over its workers."""
    return {row["way"]: float(row["rate"]) for row in _DISK.finditer(text)}
