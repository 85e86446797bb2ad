"""Random hangs of real DDP jobs on gloo: how often the verdict names rank and cause, and how fast.

Each schedule draws a kind of hang, a rank and a step from a seed.
"""

import importlib.util
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.disturbed_run import percentile
from bench.figure import Figure
from holdfast.adapters.local.layout import RunDir
from holdfast.decisions.hang_verdict import VerdictKind

BY_NAME_ONLY = "each of its schedules takes about half a minute"
RANKS = 4
SCHEDULES, QUICK_SCHEDULES = 40, 4
SCRIPT = Path(__file__).parents[1] / "tests/local/frameworks/torch_hang.py"
EXPECTED = {
    "asleep": VerdictKind.ABSENT,
    "dataloader": VerdictKind.ABSENT,
    "mismatch": VerdictKind.DESYNCHRONIZED,
    "sigstop": VerdictKind.STOPPED,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Properties of the verdict on one schedule."""

    is_rank: bool
    is_kind: bool
    verdict_s: float
    """From the suspicion to the stop of the attempt."""


def lacks() -> str:
    """PyTorch and py-spy."""
    if importlib.util.find_spec("torch") is None:
        return "PyTorch is not installed: make torch"
    if not Path(sys.executable).with_name("py-spy").exists():
        return "py-spy is not installed: pip install 'holdfast[stacks]'"
    return "" if os.geteuid() == 0 else "py-spy needs root"


def run(*, quick: bool = False) -> list[Figure]:
    """Run the schedules one after the other."""
    count = QUICK_SCHEDULES if quick else SCHEDULES
    outcomes = [_schedule(seed) for seed in range(count)]
    wrong_ranks = sum(not one.is_rank for one in outcomes)
    wrong_kinds = sum(not one.is_kind for one in outcomes)
    return [
        Figure(name=f"{what}, of {count} hangs", value=100 * wrong / count, unit="%", goal=5)
        for what, wrong in (("rank not named", wrong_ranks), ("cause not named", wrong_kinds))
    ] + [
        Figure(
            name="suspicion to verdict, p95",
            value=percentile([one.verdict_s for one in outcomes], 0.95),
            unit="s",
            goal=10,
        )
    ]


def _schedule(seed: int) -> Outcome:
    draw = random.Random(seed)
    hang, rank = [*EXPECTED][seed % len(EXPECTED)], draw.randrange(RANKS)
    step = draw.randint(3, 15)
    with tempfile.TemporaryDirectory() as home:
        directory = RunDir(Path(home) / "runs" / "bench")
        process = subprocess.Popen(
            [
                sys.executable, "-m", "holdfast", "run", "--name", "bench", "--boot-time", "0s",
                "--nodes", str(RANKS), "--hang-timeout", "10s", "--max-app-retries", "0",
                "--output", "json", "--", sys.executable, str(SCRIPT),
                "none" if hang == "sigstop" else hang,
            ],
            env={
                **os.environ, "HOLDFAST_HOME": home, "HANG_RANK": str(rank), "HANG_AT": str(step),
            },
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        if hang == "sigstop":
            os.kill(_pid(process, directory.log(1, rank), step), signal.SIGSTOP)
        stopped_at = _stopped_at(process)
        evidence = json.loads(directory.evidence(1).read_text(encoding="utf-8"))
    found = evidence["verdict"]
    outcome = Outcome(
        is_rank=found["ranks"] == [rank],
        is_kind=found["kind"] == EXPECTED[hang],
        verdict_s=(stopped_at - datetime.fromisoformat(evidence["suspected_at"])).total_seconds(),
    )
    sys.stderr.write(f"{seed}: {hang} of rank {rank} at step {step}: {found['text']}\n")
    return outcome


def _pid(process: subprocess.Popen[str], log: Path, step: int) -> int:
    """Return the process of a rank once it has done a step."""
    while process.poll() is None:
        text = log.read_text(encoding="utf-8") if log.exists() else ""
        if (found := re.search(rf"pid (\d+) step {step}\b", text)) is not None:
            return int(found[1])
        time.sleep(0.05)
    raise RuntimeError(f"the run ended before step {step}: {log}")


def _stopped_at(process: subprocess.Popen[str]) -> datetime:
    """Return the time at which the attempt was stopped, once the run has ended."""
    assert process.stdout is not None
    events: list[dict[str, Any]] = [json.loads(line) for line in process.stdout]
    process.wait()
    at = next(one["at"] for one in events if one["event"] == "job.attempt_stopped")
    return datetime.fromisoformat(at)
