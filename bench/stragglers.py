"""Stragglers in simulated jobs: how often and how soon a slow rank is named, and false alarms.

The noise of a window is that of 160 samples, and of own times that vary by 2 % from window to
window.
"""

import random
import statistics
from typing import Final

from bench.disturbed_run import percentile
from bench.figure import Figure
from holdfast.decisions.stragglers import WINDOWS
from tests.simulation.straggling_ranks import first_found

BY_NAME_ONLY = "it takes minutes"
SLOWDOWN: Final = 1.3
RANKS: Final = (4, 8, 16)
TRIALS: Final = 200
QUICK_TRIALS: Final = 40
HOURS: Final = 24
QUICK_HOURS: Final = 2
_WINDOW_S: Final = 40
_GOAL_S: Final = 300


def run(*, quick: bool = False, samples: int = 0) -> list[Figure]:
    """Slow one rank in ``samples`` jobs of each size, and none in a job of each size for a day."""
    trials = samples or (QUICK_TRIALS if quick else TRIALS)
    hours = QUICK_HOURS if quick else HOURS
    return [figure for ranks in RANKS for figure in _of_size(ranks, trials, hours)]


def _of_size(ranks: int, trials: int, hours: int) -> list[Figure]:
    named = [_named_after_s(ranks, seed) for seed in range(trials)]
    late = sum(one is None or one > _GOAL_S for one in named)
    times = [one for one in named if one is not None]
    healthy = dict.fromkeys(range(ranks), 1.0)
    alarm = first_found(ranks, healthy, hours * 3600 // _WINDOW_S)
    who = f"{SLOWDOWN:g}x, {ranks} ranks"
    return [
        Figure(
            name=f"{who}: not named in {_GOAL_S} s, of {trials}",
            value=100 * late / trials, unit="%", goal=5,
        ),
        Figure(name=f"{who}: time to name it, median", value=statistics.median(times), unit="s",
               goal=None),
        Figure(name=f"{who}: the same, p95", value=percentile(times, 0.95), unit="s",
               goal=_GOAL_S),
        Figure(
            name=f"{ranks} healthy ranks for {hours} h: false alarms",
            value=alarm is not None, unit="", goal=0,
        ),
    ]  # fmt: skip


def _named_after_s(ranks: int, seed: int) -> float | None:
    """Return when the slow rank is named; None if it is not, or if another one is."""
    slow = random.Random(seed).randrange(ranks)
    slowdowns = {rank: SLOWDOWN if rank == slow else 1.0 for rank in range(ranks)}
    found = first_found(seed, slowdowns, 2 * WINDOWS)
    if found is None or found[1].rank != slow:
        return None
    return float(found[0] * _WINDOW_S)
