"""Random hangs of real jobs of 8 ranks on gloo: how often rank and cause are named, and how fast.

Each schedule draws a framework, a kind of hang, a rank and a step from its number. The jobs run one
after the other under ``holdfast launch``; those of frameworks that are not installed are left out.
"""

import importlib.util
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.disturbed_run import percentile
from bench.figure import Figure
from holdfast.decisions.hang_verdict import VerdictKind
from holdfast.kit.processes import descendants, send

BY_NAME_ONLY = "each of its schedules takes about a minute"
RANKS = 8
SCHEDULES, QUICK_SCHEDULES = 24, 4
SCRIPT = Path(__file__).parents[1] / "tests/local/frameworks/hanging_ranks.py"
EXPECTED = {
    "asleep": VerdictKind.ABSENT,
    "dataloader": VerdictKind.ABSENT,
    "mismatch": VerdictKind.DESYNCHRONIZED,
    "sigstop": VerdictKind.STOPPED,
    "storage": VerdictKind.STORAGE,
}
FRAMEWORKS = {"ddp": "torch", "fsdp": "torch", "trainer": "transformers", "lightning": "lightning"}
LIMIT_S = 420
PAIRS, QUICK_PAIRS, WINDOW_S = 10, 3, 8.0
"""Windows with and without the watch, and their length: a window of samples takes as long."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """One hang."""

    framework: str
    kind: str
    rank: int
    step: int

    @classmethod
    def of(cls, number: int, kinds: Sequence[str], frameworks: Sequence[str]) -> "Schedule":
        """Return the schedule with a number: kinds and frameworks alternate."""
        draw = random.Random(number)
        kind = kinds[number % len(kinds)]
        framework = frameworks[number // len(kinds) % len(frameworks)]
        return cls(framework, kind, draw.randrange(RANKS), draw.randint(5, 30))


@dataclass(frozen=True, slots=True)
class Outcome:
    """Properties of the verdict on one schedule."""

    is_rank: bool
    is_kind: bool
    verdict_s: float
    """From the suspicion to the stored verdict."""


def lacks() -> str:
    """PyTorch and py-spy."""
    if importlib.util.find_spec("torch") is None:
        return "PyTorch is not installed: make torch"
    if not Path(sys.executable).with_name("py-spy").exists():
        return "py-spy is not installed: pip install 'holdfast[stacks]'"
    return "" if os.geteuid() == 0 else "py-spy needs root"


def run(*, quick: bool = False, samples: int = 0) -> list[Figure]:
    """Run ``samples`` schedules one after the other, and measure the cost of watching."""
    count = samples or (QUICK_SCHEDULES if quick else SCHEDULES)
    frameworks = [name for name, module in FRAMEWORKS.items() if importlib.util.find_spec(module)]
    with storage() as frozen:
        kinds = [kind for kind in EXPECTED if kind != "storage" or frozen is not None]
        left_out = {*FRAMEWORKS, *EXPECTED} - {*frameworks, *kinds}
        sys.stderr.write(f"left out: {', '.join(sorted(left_out)) or 'nothing'}\n")
        schedules = [Schedule.of(number, kinds, frameworks) for number in range(count)]
        outcomes = [_outcome(number, one, frozen) for number, one in enumerate(schedules)]
    wrong_ranks = sum(not one.is_rank for one in outcomes)
    wrong_kinds = sum(not one.is_kind for one in outcomes)
    return [
        *(
            Figure(name=f"{what}, of {count} hangs", value=100 * wrong / count, unit="%", goal=5)
            for what, wrong in (("rank not named", wrong_ranks), ("cause not named", wrong_kinds))
        ),
        Figure(
            name="suspicion to verdict, p95",
            value=percentile([one.verdict_s for one in outcomes], 0.95),
            unit="s",
            goal=10,
        ),
        *_overhead(QUICK_PAIRS if quick else PAIRS),
    ]


def _outcome(number: int, one: Schedule, frozen: Path | None) -> Outcome:
    with tempfile.TemporaryDirectory() as folder, _launched(one, Path(folder), frozen) as process:
        if one.kind in ("sigstop", "storage"):
            _stop(one, Path(folder), frozen, process)
        evidence = _evidence(process, Path(folder))
    if evidence is None:
        sys.stderr.write(f"{number}: {one}: no verdict within {LIMIT_S} s\n")
        return Outcome(is_rank=False, is_kind=False, verdict_s=float(LIMIT_S))
    found, verdict_s = evidence
    outcome = Outcome(
        is_rank=found["verdict"]["ranks"] == [one.rank],
        is_kind=found["verdict"]["kind"] == EXPECTED[one.kind],
        verdict_s=verdict_s,
    )
    is_right = outcome.is_rank and outcome.is_kind
    text = f"{'ok' if is_right else 'WRONG'} {verdict_s:.1f} s: {found['verdict']['text']}"
    sys.stderr.write(f"{number}: {one}: {text}\n")
    return outcome


@contextmanager
def _launched(
    one: Schedule, folder: Path, frozen: Path | None, *options: str
) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a job; end it with all its processes."""
    data = frozen if frozen is not None and one.kind == "storage" else folder / "data"
    data.mkdir(exist_ok=True)
    for left in (*data.parent.glob("ready-*"), data.parent / "go"):
        left.unlink(missing_ok=True)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                sys.executable, "-m", "holdfast", "launch", "--nproc-per-node", str(RANKS),
                "--max-restarts", "0", "--log-dir", str(folder / "logs"), "-r", "3",
                *(options or ("--hang-timeout", "25s", "--straggler-factor", "0")),
                str(SCRIPT), one.framework, one.kind, str(one.rank), str(one.step), str(data),
            ],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"},
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield process
    finally:
        pids = [process.pid, *descendants(process.pid)]
        if frozen is not None:
            subprocess.run(["fsfreeze", "-u", frozen], check=False, stderr=subprocess.DEVNULL)
        for pid in pids:
            send(pid, signal.SIGKILL)
        process.wait()


def _stop(
    one: Schedule, folder: Path, frozen: Path | None, process: "subprocess.Popen[bytes]"
) -> None:
    """Stop the rank, or its storage, once the ranks are at the step before."""
    data = frozen if frozen is not None and one.kind == "storage" else folder / "data"
    ready = data.parent / f"ready-{one.rank}"
    end = time.monotonic() + LIMIT_S
    while not (ready.exists() and ready.read_text(encoding="ascii")):
        if process.poll() is not None or time.monotonic() > end:
            return
        time.sleep(0.05)
    if one.kind == "sigstop":
        send(int(ready.read_text(encoding="ascii")), signal.SIGSTOP)
    elif frozen is not None:
        subprocess.run(["fsfreeze", "-f", frozen], check=True)
    (data.parent / "go").touch()


def _evidence(
    process: "subprocess.Popen[bytes]", folder: Path
) -> tuple[dict[str, Any], float] | None:
    """Return the stored evidence, and the seconds from the suspicion to it."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        files = [*folder.glob("logs/*/attempt_*/evidence.json")]
        if files:
            found: dict[str, Any] = json.loads(files[0].read_text(encoding="utf-8"))
            began = datetime.fromisoformat(found["suspected_at"]).timestamp()
            return found, files[0].stat().st_mtime - began
        if process.poll() is not None:
            break
        time.sleep(0.1)
    sys.stderr.write((folder / "log").read_text(encoding="utf-8", errors="replace")[-1500:])
    for log in sorted(folder.glob("logs/*/attempt_0/*/stderr.log"))[:1]:
        sys.stderr.write(log.read_text(encoding="utf-8", errors="replace")[-1500:])
    return None


@contextmanager
def storage() -> Iterator[Path | None]:
    """Mount a file system that can be frozen; None where that is not possible.

    The files with which ranks and this process coordinate are beside it.
    """
    folder = Path(tempfile.mkdtemp())
    image, mounted = folder / "image", folder / "mounted"
    mounted.mkdir()
    commands = (
        ["truncate", "--size=32M", image],
        ["mkfs.ext4", "-q", image],
        ["mount", "-o", "loop", image, mounted],
    )
    try:
        for command in commands:
            subprocess.run(command, check=True, capture_output=True)
        is_there = shutil.which("fsfreeze") is not None
    except (OSError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"no file system to freeze: {error}\n")
        is_there = False
    try:
        yield mounted if is_there else None
    finally:
        subprocess.run(["umount", "--lazy", mounted], check=False, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


def _overhead(pairs: int) -> list[Figure]:
    """Compare the steps of the same ranks while they are watched and while they are not."""
    calm = Schedule("ddp", "none", 0, 10**9)
    window = f"{WINDOW_S:g}s"
    options = ("--straggler-factor", "1.15", "--straggler-window", window)
    with (
        tempfile.TemporaryDirectory() as folder,
        _launched(calm, Path(folder), None, *options) as process,
    ):
        steps = _Steps(Path(folder))
        if not steps.wait(process, 100):
            sys.stderr.write("overhead: the job did not start\n")
            return []
        time.sleep(2 * WINDOW_S)
        ratios = []
        for number in range(pairs):
            rates = {}
            for is_watched in (True, False) if number % 2 else (False, True):
                _hold(process.pid, signal.SIGCONT if is_watched else signal.SIGSTOP)
                before, began = steps.count(), time.monotonic()
                time.sleep(WINDOW_S)
                rates[is_watched] = (steps.count() - before) / (time.monotonic() - began)
            _hold(process.pid, signal.SIGCONT)
            ratios.append(rates[False] / max(rates[True], 1e-9) - 1)
    sys.stderr.write(f"overhead of each pair: {[f'{100 * one:.1f} %' for one in ratios]}\n")
    spread = statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else 0.0
    median = statistics.median(ratios)
    return [
        Figure(
            name=f"watching: step time, median of {pairs} pairs",
            value=100 * median, unit="%", goal=None,
        ),
        Figure(
            name="watching: the same and two standard errors",
            value=100 * (median + 2 * spread), unit="%", goal=1,
        ),
    ]  # fmt: skip


class _Steps:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def count(self) -> int:
        """Return the number of steps of rank 0."""
        files = [*self._folder.glob("logs/*/attempt_0/0/progress")]
        return files[0].read_bytes().count(b"\n") if files else 0

    def wait(self, process: "subprocess.Popen[bytes]", count: int) -> bool:
        """Wait for a number of steps. Returns whether they were done in time."""
        end = time.monotonic() + LIMIT_S
        while self.count() < count:
            if process.poll() is not None or time.monotonic() > end:
                return False
            time.sleep(0.1)
        return True


def _hold(launcher: int, signum: int) -> None:
    """Stop or continue the launcher and what it started to watch, but no rank."""
    below = descendants(launcher)
    ranks = {pid for pid in below if str(SCRIPT).encode() in _arguments(pid)}
    spared = {pid for rank in ranks for pid in (rank, *descendants(rank))}
    for pid in (launcher, *below):
        if pid not in spared:
            send(pid, signum)


def _arguments(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
