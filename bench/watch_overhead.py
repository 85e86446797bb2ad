"""What watching costs a job: the same ranks, watched and not watched in turn."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Final

from bench.figure import Figure
from bench.hang_schedules import RANKS, Schedule
from bench.hanging_job import LIMIT_S, SCRIPT, HangingJob, hanging_job, launch_command
from holdfast.adapters.host.rank_samples import SECONDS
from holdfast.kit.processes import descendants, send

_WINDOW_S: Final = 4.0
"""Duration of a window; a window of samples takes as long."""

_PERIOD_S: Final = 43.0
"""Time from one default window of samples to the next one."""

_CALM: Final = Schedule(0, "ddp", "none", 0, 10**9, 0)


def overhead(pairs: int) -> list[Figure]:
    """Compare the steps of the same ranks while they are watched and while they are not.

    The load of a machine that other programs use as well changes the steps more than watching
    does, which the standard error shows. The CPU time of watching does not depend on it.
    """
    command = launch_command("--straggler-factor", "1.15", "--straggler-window", f"{_WINDOW_S:g}s")
    with hanging_job(command, [_CALM], None, {"HANGING_RANKS_REPORTED": "1"}) as job:
        steps = Steps(job)
        if not steps.wait(100):
            sys.stderr.write(f"overhead: the job did not start: {job.log[-1500:]}\n")
            return []
        time.sleep(2 * _WINDOW_S)
        compared = [_pair(job, steps, is_first=number % 2 == 0) for number in range(pairs)]
    ratios = [one for one, _ in compared]
    error = statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else 0.0
    share = statistics.mean(one for _, one in compared)
    return [
        Figure(
            name=f"watching: step time, median of {pairs} pairs",
            value=100 * statistics.median(ratios), unit="%", goal=1,
        ),
        Figure(name="watching: standard error", value=100 * error, unit="%", goal=None),
        Figure(name="watching: share of the CPUs", value=100 * share, unit="%", goal=1),
    ]  # fmt: skip


def cpu_time(windows: int) -> list[Figure]:
    """Measure the CPU time of watching with the default window of samples.

    It hardly depends on what other programs do, unlike the duration of steps, so that it is
    measured without pairs. On a busy machine the launcher skips windows, so that they are taken
    here, one after the other, and count as if one began every 43 s.
    """
    with hanging_job(
        launch_command("--straggler-factor", "0"), [_CALM], None, {"HANGING_RANKS_REPORTED": "1"}
    ) as job:
        if not Steps(job).wait(20):
            sys.stderr.write(f"CPU time: the job did not start: {job.log[-1500:]}\n")
            return []
        used, began = _cpu_s(_watching(job.process.pid)), time.monotonic()
        in_windows = [_window_cpu_s(job.process.pid) for _ in range(windows)]
        took = time.monotonic() - began
        launcher = (_cpu_s(_watching(job.process.pid)) - used) / took
    share = statistics.mean(in_windows) / _PERIOD_S
    return [
        Figure(
            name=f"samples, {windows} windows of 40 s: share of a core for each rank",
            value=100 * share / RANKS, unit="%", goal=0.5,
        ),
        Figure(
            name="launcher and samples: share of the CPUs",
            value=100 * (launcher + share) / (os.cpu_count() or 1), unit="%", goal=None,
        ),
    ]  # fmt: skip


def _window_cpu_s(launcher: int) -> float:
    """Return the CPU time of one window of samples of all ranks, in seconds."""
    ranks = enumerate(sorted(rank_processes(launcher)))
    pairs = [f"{number}:{pid}" for number, pid in ranks]
    command = (sys.executable, "-m", "holdfast.adapters.host.rank_samples", str(SECONDS), "bench")
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen([*command, *pairs], stdout=printed)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        printed.seek(0)
        sampled = json.load(printed)
    if len(sampled["ranks"]) != RANKS:
        raise RuntimeError(f"a window has no samples of {RANKS} ranks: {sampled['note']}")
    return usage.ru_utime + usage.ru_stime


def _pair(job: HangingJob, steps: "Steps", *, is_first: bool) -> tuple[float, float]:
    """Return by how much watching slows steps down, and its share of the CPUs.

    Args:
        job: a job without hangs.
        steps: its steps.
        is_first: whether the window in which it is watched is the first one.

    """
    rates, share = {}, 0.0
    for is_watched in (is_first, not is_first):
        watching = _watching(job.process.pid)
        for pid in watching:
            send(pid, SIGCONT if is_watched else SIGSTOP)
        before, used, began = steps.count(), _cpu_s(watching), time.monotonic()
        time.sleep(_WINDOW_S)
        took = time.monotonic() - began
        rates[is_watched] = (steps.count() - before) / took
        if is_watched:
            used = _cpu_s(_watching(job.process.pid)) - used
            share = max(0.0, used) / took / (os.cpu_count() or 1)
    for pid in _watching(job.process.pid):
        send(pid, SIGCONT)
    return rates[False] / max(rates[True], 1e-9) - 1, share


class Steps:
    """Steps of a job by the progress file of its rank 0."""

    def __init__(self, job: HangingJob) -> None:
        self._job = job

    def count(self) -> int:
        """Return the number of steps of rank 0."""
        files = [*self._job.folder.glob("logs/*/attempt_0/0/progress")]
        return files[0].read_bytes().count(b"\n") if files else 0

    def wait(self, count: int) -> bool:
        """Wait for a number of steps. Returns whether they were done in time."""
        end = time.monotonic() + LIMIT_S
        while self.count() < count:
            if self._job.has_ended() or time.monotonic() > end:
                return False
            time.sleep(0.1)
        return True


def _watching(launcher: int) -> list[int]:
    """Return the launcher and what it started to watch, but no rank."""
    spared = {pid for rank in rank_processes(launcher) for pid in (rank, *descendants(rank))}
    return [pid for pid in (launcher, *descendants(launcher)) if pid not in spared]


def rank_processes(launcher: int) -> set[int]:
    """Return the processes of the ranks, without their workers, which have the same arguments."""
    below = descendants(launcher)
    same = {pid for pid in below if _arguments(pid)[1:3] == [b"-u", str(SCRIPT).encode()]}
    return same - {worker for pid in same for worker in descendants(pid)}


def _cpu_s(pids: Sequence[int]) -> float:
    """Return the CPU time of processes and of those below them that have ended, in seconds."""
    ticks = 0
    for pid in pids:
        try:
            stat = Path(f"/proc/{pid}/stat").read_bytes()
        except OSError:
            continue
        ticks += sum(map(int, stat.rpartition(b")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _arguments(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
