"""Random hangs of real jobs of 8 ranks on gloo: how often rank and cause are named, and how fast.

Each schedule draws a framework, a kind of hang, a rank and a step from its number and ``--seed``.
``holdfast launch`` runs them, several in one job, and the results are kept in
``build/insight.jsonl``, those of another seed in ``build/insight-SEED.jsonl``: a run that was
interrupted continues, one with more ``--schedules`` runs those that are missing, and a file that is
removed begins anew. Frameworks that are not installed are left out. With all schedules, other
launchers then get the same hangs, and the cost of watching is measured.
"""

import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.disturbed_run import percentile
from bench.figure import Figure
from bench.hang_peers import measure_peers
from bench.hang_schedules import EXPECTED, FRAMEWORKS, Outcome, Results, Schedule
from bench.hang_verdicts import run_schedules
from bench.hanging_job import storage
from bench.restart_launchers import uv
from bench.watch_overhead import cpu_time, overhead

BY_NAME_ONLY = "its schedules take about a quarter of a minute each"
SCHEDULES, QUICK_SCHEDULES = 200, 20
PAIRS, QUICK_PAIRS = 60, 3
WINDOWS, QUICK_WINDOWS = 8, 1
CONCURRENT_JOBS = 2
"""Jobs at a time."""

PEERS = Path("build/peers")


def lacks() -> str:
    """PyTorch and py-spy."""
    if importlib.util.find_spec("torch") is None:
        return "PyTorch is not installed: make torch"
    if not Path(sys.executable).with_name("py-spy").exists():
        return "py-spy is not installed: pip install 'holdfast[stacks]'"
    if not uv():
        return "uv is not installed: make frameworks"
    return "" if os.geteuid() == 0 else "py-spy needs root"


def run(*, quick: bool = False, samples: int = 0, seed: int = 0) -> list[Figure]:
    """Run ``samples`` schedules; with all, other launchers and pairs for the cost of watching."""
    count = samples or (QUICK_SCHEDULES if quick else SCHEDULES)
    results = Results(results_file(seed))
    schedules = _schedules(count, seed)
    known = results.known()
    left = [one for one in schedules if one.number not in known]
    kinds = list(dict.fromkeys(one.kind for one in schedules))
    sys.stderr.write(f"{count - len(left)} of {count} schedules have run before\n")
    run_schedules(left, results, kinds=len(kinds), concurrency=CONCURRENT_JOBS)
    known = results.known()
    outcomes = [known[one.number] for one in schedules if one.number in known]
    load = os.getloadavg()[2]
    sys.stderr.write(f"load average of the last 15 minutes: {load:.1f} on {os.cpu_count()} CPUs\n")
    if samples and samples < SCHEDULES:
        return _verdicts(outcomes, count)
    return [
        *_verdicts(outcomes, count),
        *measure_peers(kinds, PEERS),
        *overhead(QUICK_PAIRS if quick else PAIRS),
        *cpu_time(QUICK_WINDOWS if quick else WINDOWS),
    ]


def results_file(seed: int) -> Path:
    """Return the file with the results of a seed."""
    return Path("build") / (f"insight-{seed}.jsonl" if seed else "insight.jsonl")


def _schedules(count: int, seed: int) -> list[Schedule]:
    frameworks = [name for name, module in FRAMEWORKS.items() if importlib.util.find_spec(module)]
    with storage() as frozen:
        kinds = [kind for kind in EXPECTED if kind != "storage" or frozen is not None]
    left_out = {*FRAMEWORKS, *EXPECTED} - {*frameworks, *kinds}
    sys.stderr.write(f"left out: {', '.join(sorted(left_out)) or 'nothing'}\n")
    return [Schedule.of(number, kinds, frameworks, seed) for number in range(count)]


def _verdicts(outcomes: Sequence[Outcome], count: int) -> list[Figure]:
    if not outcomes:
        return []
    shares = {
        "rank not named": [not one.is_rank for one in outcomes],
        "cause not named": [not one.is_kind for one in outcomes],
        "rank or cause not named": [not one.is_right for one in outcomes],
    }
    total = len(outcomes)
    shown = [
        Figure(name=f"{what}, of {total} hangs", value=100 * sum(them) / total, unit="%", goal=5)
        for what, them in shares.items()
    ]
    minutes = sum(one.healthy_s for one in outcomes) / 60
    return [
        Figure(name="hangs that never came about", value=count - total, unit="", goal=0),
        *shown,
        Figure(
            name=f"false verdicts in {minutes:.0f} healthy minutes",
            value=sum(one.is_false for one in outcomes), unit="", goal=0,
        ),
        Figure(
            name="suspicion to verdict, p95",
            value=percentile([one.verdict_s for one in outcomes], 0.95), unit="s", goal=10,
        ),
        Figure(
            name="hang to verdict, median",
            value=percentile([one.hung_s for one in outcomes], 0.5), unit="s", goal=None,
        ),
    ]  # fmt: skip
