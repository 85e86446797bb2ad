"""Stragglers in real jobs: whether and when ``holdfast launch`` names a rank that is slowed down.

Four ranks of DDP on gloo run under the launcher with its default window of 40 seconds. From the
20th step on, one of them is slowed down, by longer sleeps, a smaller CPU quota or storage whose
reads take longer. All ranks have such a quota or storage then, so that only their own part of a
step takes longer. Five jobs run side by side, mostly asleep or throttled: they take about one core.
The jobs with factor 1 are healthy. Quotas act on averages: ranks that wait for the slow one stay
below theirs, and the factor that is reported is larger than that of the quotas.
"""

import importlib.util
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Final

from bench import needs
from bench._cpu_quota import limited_cpu, parent
from bench.figure import Figure
from holdfast.kit.processes import descendants, send

BY_NAME_ONLY = "it takes 12 minutes"
RANKS: Final = 4
FACTORS: Final = (1.0, 1.1, 1.3, 2.0, 5.0)
QUICK_FACTORS: Final = (2.0,)
_KINDS: Final = ("sleep", "quota", "storage")
_AT_ONCE: Final = 5
"""Jobs that run side by side."""

SLEEP_S: Final = 0.06
BURN_S: Final = 0.03
QUOTA: Final = 0.05
"""Cores of each rank: those of all jobs together take at most one."""

READ_BYTES: Final = 1 << 16
"""Bytes that each rank reads in a step, in one request."""

READ_S: Final = 0.06
"""Time that its storage needs for that."""

_GOAL_S: Final = 300
_MISSED: Final = 0.05
"""Share of the stragglers that may be named later, or not at all."""

_LIMIT_S: Final = 360
_START_S: Final = 180
_FOUND: Final = re.compile(r"StragglerFound.* rank (\d+) on .* takes (\d+\.\d+)x")


@dataclass(frozen=True, slots=True)
class Named:
    """A rank that the launcher has named."""

    after_s: float
    rank: int
    factor: float
    """Its own part of a step, as the launcher reports it."""


def lacks() -> str:
    """PyTorch and py-spy."""
    if not Path(sys.executable).with_name("py-spy").exists():
        return "py-spy is not installed: pip install 'holdfast[stacks]'"
    return needs.torch() if os.geteuid() == 0 else "py-spy needs root"


def run(
    *,
    quick: bool = False,
    samples: int = 0,
    seed: int = 0,
    factor: Sequence[float] = (),
    kind: Sequence[str] = (),
) -> Iterator[Figure]:
    """Run ``samples`` jobs of each kind and factor, or of those that are named."""
    factors = tuple(factor) or (QUICK_FACTORS if quick else FACTORS)
    obstacles = _obstacles()
    for one in obstacles.keys() & {*kind}:
        sys.exit(f"{one} cannot be measured here: {obstacles[one]}")
    kinds = [one for one in _KINDS if one not in obstacles and (not kind or one in kind)]
    loads = [os.getloadavg()[0]]

    def named(number: int, cause: str, factor: float) -> Named | None:
        slow = random.Random(f"{seed} {number} {cause}").randrange(RANKS)
        found = _right(_named(cause, factor, slow), slow, factor)
        loads.append(os.getloadavg()[0])
        return found

    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        jobs = [
            (cause, one, pool.submit(named, number, cause, one))
            for number in range(samples or 1)
            for cause in kinds
            for one in factors
        ]
        found: dict[tuple[str, float], list[Named | None]] = {}
        for cause, one, job in jobs:
            found.setdefault((cause, one), []).append(job.result())
    for (cause, one), results in found.items():
        yield from _figures(cause, one, results, f"load {min(loads):.0f}-{max(loads):.0f}")


def _right(one: Named | None, slow: int, factor: float) -> Named | None:
    """Return a rank that was named, unless it was the wrong one of a job with a slow rank."""
    if one is not None and factor > 1 and one.rank != slow:
        sys.stderr.write(f"{factor:g}x: rank {one.rank} was named, and rank {slow} is slow\n")
        return None
    return one


def _figures(
    kind: str, factor: float, results: Sequence[Named | None], noise: str
) -> Iterator[Figure]:
    named = [one for one in results if one is not None]
    who = f"{factor:g}x by {kind}, {noise}"
    if factor == 1:
        name = f"healthy ranks that {kind}, {noise}: named, of {len(results)}"
        yield Figure(name=name, value=len(named), unit="", goal=0)
        return
    late = len(results) - sum(one.after_s <= _GOAL_S for one in named)
    name = f"{who}: not named within 5 minutes, of {len(results)}"
    goal = None if factor < 1.3 else _MISSED * len(results)
    yield Figure(name=name, value=late, unit="", goal=goal)
    if named:
        times = [one.after_s for one in named]
        name = f"{who}: median time to name it"
        yield Figure(name=name, value=statistics.median(times), unit="s", goal=None)
        name = f"{who}: latest time to name it"
        yield Figure(name=name, value=max(times), unit="s", goal=None)
        mean = sum(one.factor for one in named) / len(named)
        yield Figure(name=f"{who}: factor that is reported", value=mean, unit="x", goal=None)


def _named(kind: str, factor: float, slow: int) -> Named | None:
    """Return the first rank that the launcher names; None if it names none in time."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with ExitStack() as limits:
            if kind == "storage":
                limits.enter_context(_storage(folder))
            job = limits.enter_context(_job(folder, slow, *_own_part(kind, factor)))
            if not _until(lambda: len([*folder.glob("rank-[0-9]")]) == RANKS, job, _START_S):
                sys.stderr.write(f"the job did not start: {_log(folder)[-1500:]}\n")
                return None
            for rank in range(RANKS):
                pid = int((folder / f"rank-{rank}").read_text(encoding="ascii"))
                own = factor if rank == slow else 1.0
                if kind == "quota":
                    limits.enter_context(limited_cpu(QUOTA / own, pid))
                elif kind == "storage":
                    _set_delay(folder, rank, READ_S * own)
            began = time.monotonic()
            _until(lambda: _FOUND.search(_log(folder)) is not None, job, _LIMIT_S)
            found, after_s = _FOUND.search(_log(folder)), time.monotonic() - began
        if found is None:
            return None
        return Named(after_s, int(found[1]), float(found[2]))


def _own_part(kind: str, factor: float) -> tuple[float, float, float, int]:
    """Return the sleep of a rank and of the slow one, CPU time, and bytes that are read."""
    parts = {
        "sleep": (SLEEP_S, SLEEP_S * factor, 0.0, 0),
        "quota": (0.0, 0.0, BURN_S, 0),
        "storage": (0.0, 0.0, 0.0, READ_BYTES),
    }
    return parts[kind]


def _obstacles() -> dict[str, str]:
    """Return why this machine cannot have some kinds of slow ranks."""
    found = {}
    if parent() is None:
        found["quota"] = "no cgroup with a CPU controller can be written"
    if not os.access("/dev/fuse", os.W_OK):
        found["storage"] = "it needs /dev/fuse: modprobe fuse"
    elif importlib.util.find_spec("mfusepy") is None:
        found["storage"] = "it needs mfusepy: make frameworks"
    return found


@contextmanager
def _storage(folder: Path) -> Iterator[None]:
    """Mount a file for each rank, whose reads take the time that ``_set_delay`` has set."""
    mounted, delays = folder / "storage", folder / "delays"
    mounted.mkdir()
    delays.mkdir()
    for rank in range(RANKS):
        _set_delay(folder, rank, READ_S)
    script = Path(__file__).with_name("_slow_storage.py")
    arguments = (str(mounted), str(delays), str(READ_BYTES))
    with (folder / "server").open("wb") as log:
        server = Popen([sys.executable, str(script), *arguments], stdout=log, stderr=log)
    try:
        if not _until(mounted.is_mount, server, _START_S):
            why = (folder / "server").read_text(encoding="utf-8", errors="replace")
            raise OSError(f"no file system was mounted; is libfuse 3 installed? {why[-500:]}")
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(mounted)], check=False)
        server.kill()
        server.wait()


def _set_delay(folder: Path, rank: int, seconds: float) -> None:
    new = folder / f"delay-{rank}"
    new.write_text(str(seconds), encoding="ascii")
    new.rename(folder / "delays" / str(rank))


@contextmanager
def _job(folder: Path, slow: int, *seconds: float) -> Iterator["Popen[bytes]"]:
    script = Path(__file__).with_name("_slowed_ranks.py")
    options = ("--nproc-per-node", str(RANKS), "--max-restarts", "0")
    arguments = (str(script), str(folder), str(slow), *map(str, seconds))
    with (folder / "log").open("wb") as log:
        job = Popen(
            [sys.executable, "-m", "holdfast", "launch", *options, *arguments],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield job
    finally:
        for pid in (job.pid, *descendants(job.pid)):
            send(pid, 9)
        job.wait()


def _until(condition: Callable[[], bool], job: "Popen[bytes]", limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while not condition():
        if job.poll() is not None or time.monotonic() > deadline:
            return False
        time.sleep(0.5)
    return True


def _log(folder: Path) -> str:
    return (folder / "log").read_text(encoding="utf-8", errors="replace")
