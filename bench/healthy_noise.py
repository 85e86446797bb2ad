"""Healthy ranks of a real job under the noise of this machine: false stragglers and false hangs.

Eight ranks of DDP on gloo run under ``holdfast launch`` with the default limits of hangs. They are
sampled as the launcher samples them, one window of 40 seconds every 43 s, and each window is kept
in ``build/healthy-noise.jsonl``: a run that was interrupted continues until the file has the
duration that was asked for, and another decision is tried on the same windows. Their own times are
mostly sleep, as of ranks that wait for an accelerator, so that the job takes little of the CPUs:
it is other programs of the machine that disturb it.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from bench.figure import Figure
from bench.hang_schedules import RANKS, Schedule
from bench.hanging_job import HangingJob, hanging_job, launch_command
from bench.insight import lacks
from bench.watch_overhead import Steps, rank_processes
from holdfast.adapters.host.rank_samples import SECONDS
from holdfast.decisions.rank_snapshots import RankSamples
from holdfast.decisions.stragglers import WINDOWS, Window, straggler, window_of
from holdfast.kit.serial import parse_value, to_plain

__all__ = ["lacks", "run"]

BY_NAME_ONLY = "it takes hours"
DURATION, QUICK_DURATION = timedelta(hours=2), timedelta(minutes=3)
RESULTS: Final = Path("build/healthy-noise.jsonl")
PERIOD: Final = timedelta(seconds=43)
"""Time from one window to the next one: 40 seconds, and 3 to start."""

_FACTOR: Final = 1.15
"""Excess that the launcher reports by default."""

_HEALTHY: Final = Schedule(0, "ddp", "none", 0, 10**9, 0)
_STEPS: Final = {"HANGING_RANKS_REPORTED": "1", "HANGING_RANKS_STEP_S": "0.08"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One window of a job."""

    job: float
    """Start of the job, in seconds since 1970: windows of other jobs are of other ranks."""

    load: float
    """Load average of the last minute at its end."""

    steps: int
    """Steps of rank 0 until its end."""

    hangs: int
    """Hangs that the launcher has suspected so far."""

    ranks: tuple[RankSamples, ...]
    """Samples; empty if py-spy took too long."""


def run(*, quick: bool = False, duration: timedelta = timedelta()) -> Iterator[Figure]:
    """Run the healthy job until ``duration`` is in the file, and count what was reported."""
    requested = duration or (QUICK_DURATION if quick else DURATION)
    count = -(-requested // PERIOD)
    known = observed(RESULTS)
    if len(known) < count:
        _observe(len(known), count)
    yield from figures(observed(RESULTS)[:count])


def observed(file: Path) -> list[Observed]:
    """Return the windows in a file, oldest first."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    return [parse_value(Observed, line) for line in lines]


def figures(windows: Sequence[Observed]) -> list[Figure]:
    """Return how often healthy ranks were reported, and how noisy their own times were."""
    if not windows:
        return []
    jobs: dict[float, list[Observed]] = {}
    for one in windows:
        jobs.setdefault(one.job, []).append(one)
    compared = {job: _compared(them) for job, them in jobs.items()}
    found = [one for them in compared.values() for one in _named(them)]
    for text in found:
        sys.stderr.write(f"false: {text}\n")
    minutes = len(windows) * PERIOD / timedelta(minutes=1)
    loads = [one.load for one in windows]
    noise = f"{minutes:.0f} min at load averages of {min(loads):.0f} to {max(loads):.0f}"
    hangs = sum(max(one.hangs for one in them) for them in jobs.values())
    usable = sum(map(len, compared.values()))
    deviations = [_deviation(them) for them in compared.values() if len(them) > 1]
    return [
        Figure(name=f"false stragglers in {noise}", value=len(found), unit="", goal=0),
        Figure(name=f"false hangs in {noise}", value=hangs, unit="", goal=0),
        Figure(
            name=f"windows that could be compared, of {len(windows)}",
            value=usable, unit="", goal=None,
        ),
        *(
            Figure(
                name="own time over that of the others, deviation from window to window",
                value=100 * one, unit="%", goal=None,
            )
            for one in deviations
        ),
    ]  # fmt: skip


def _compared(job: Sequence[Observed]) -> list[Window]:
    found = [window_of(one.ranks) for one in job if one.ranks]
    return [one for one in found if one is not None]


def _named(windows: Sequence[Window]) -> list[str]:
    """Return the ranks that are named as the windows come; a rank that stays named counts once."""
    found, last = [], None
    for count in range(1, len(windows) + 1):
        one = straggler(windows[max(0, count - 2 * WINDOWS) : count], _FACTOR)
        if one is not None and one.rank != last:
            found.append(one.text)
        last = None if one is None else one.rank
    return found


def _deviation(windows: Sequence[Window]) -> float:
    ranks = set.intersection(*(set(one) for one in windows))
    return statistics.median(
        statistics.stdev(one[rank].excess for one in windows) for rank in ranks
    )


def _observe(before: int, total: int) -> None:
    """Append windows of one new job to the file until it has ``total``."""
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    command = launch_command("--straggler-factor", "0", "--max-restarts", "0")
    with hanging_job(command, [_HEALTHY], None, _STEPS) as job, RESULTS.open("a") as file:
        steps, began = Steps(job), time.time()
        if not steps.wait(20):
            sys.stderr.write(f"the job did not start: {job.log[-1500:]}\n")
            return
        hangs = _Hangs(job)
        for number in range(before + 1, total + 1):
            due = time.monotonic() + PERIOD.total_seconds()
            ranks = _window(job)
            if job.has_ended():
                sys.stderr.write(f"the job has ended: {job.log[-1500:]}\n")
                return
            one = Observed(
                job=began, load=os.getloadavg()[0], steps=steps.count(), hangs=hangs.count(),
                ranks=ranks,
            )  # fmt: skip
            file.write(json.dumps(to_plain(one)) + "\n")
            file.flush()
            sys.stderr.write(
                f"window {number} of {total}: {len(ranks)} ranks, {one.steps} steps, load average "
                f"{one.load:.0f}, {one.hangs} hangs suspected\n"
            )
            time.sleep(max(0.0, due - time.monotonic()))


def _window(job: HangingJob) -> tuple[RankSamples, ...]:
    pairs = [f"{rank}:{pid}" for rank, pid in enumerate(sorted(rank_processes(job.process.pid)))]
    if len(pairs) != RANKS:
        return ()
    command = (sys.executable, "-m", "holdfast.adapters.host.rank_samples", str(SECONDS), "bench")
    done = subprocess.run([*command, *pairs], capture_output=True, check=True)
    return parse_value(_Printed, done.stdout.decode("utf-8")).ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class _Printed:
    ranks: tuple[RankSamples, ...] = ()


class _Hangs:
    """Counts the hangs that a launcher has suspected: each writes its evidence."""

    def __init__(self, job: HangingJob) -> None:
        self._job = job
        self._seen: set[tuple[str, int]] = set()

    def count(self) -> int:
        for file in self._job.folder.glob("logs/*/attempt_*/evidence.json"):
            self._seen.add((str(file), file.stat().st_mtime_ns))
        return len(self._seen)
