"""Stragglers in simulated jobs: how often and how soon a slow rank is named, and false alarms.

A rank becomes slow within a window, after 20 in which it was not, and windows begin every 43 s. All
have the noise of their samples. Own times vary by 2 % from window to window in calm noise; in
disturbed noise, they also wander by 2 % over minutes, have outliers, and differ by up to 4 % as the
stages of a pipeline do, and rank 0 saves a checkpoint every 10 minutes.
"""

import random
import statistics
from collections.abc import Iterator
from typing import Final

from bench.disturbed_run import percentile
from bench.figure import Figure
from holdfast.decisions.stragglers import WINDOWS
from tests.simulation.straggling_ranks import (
    CALM,
    DISTURBED,
    Noise,
    first_found,
    first_found_later,
)

BY_NAME_ONLY = "it takes minutes"
SLOWDOWN: Final = 1.3
RANKS: Final = (4, 8, 16)
TRIALS: Final = 200
QUICK_TRIALS: Final = 40
DAYS: Final = 7
QUICK_DAYS: Final = 1
_PERIOD_S: Final = 43
"""Time from one window to the next one: 40 seconds, and 3 to start."""

_HEALTHY: Final = 20
"""Windows before a slowdown."""

_GOAL_S: Final = 300
_SEEDS: Final = 1_000_000
"""Jobs that one seed of the benchmark may have."""

NOISES: Final = {"calm": CALM, "disturbed": DISTURBED}


def run(*, quick: bool = False, samples: int = 0, seed: int = 0) -> Iterator[Figure]:
    """Slow one rank in ``samples`` jobs of each size, and none in a job of each size for a week."""
    trials = samples or (QUICK_TRIALS if quick else TRIALS)
    days = QUICK_DAYS if quick else DAYS
    first = seed * _SEEDS
    for ranks in RANKS:
        yield from _of_size(ranks, range(first, first + trials), range(first, first + days))


def _of_size(ranks: int, trials: range, days: range) -> list[Figure]:
    figures = [
        figure
        for name, noise in NOISES.items()
        for figure in _of_noise(f"{SLOWDOWN:g}x, {ranks} ranks, {name}", noise, ranks, trials)
    ]
    healthy, windows = dict.fromkeys(range(ranks), 1.0), 86400 // _PERIOD_S
    for name, noise in NOISES.items():
        alarms = sum(first_found(day, healthy, windows, noise) is not None for day in days)
        what = f"{ranks} healthy ranks, {name}: days of {len(days)} with a false alarm"
        figures.append(Figure(name=what, value=alarms, unit="", goal=0))
    return figures


def _of_noise(who: str, noise: Noise, ranks: int, trials: range) -> list[Figure]:
    named = [_named_after_s(ranks, seed, noise) for seed in trials]
    late = sum(one is None or one > _GOAL_S for one in named)
    times = [one for one in named if one is not None]
    return [
        Figure(
            name=f"{who}: not named in {_GOAL_S} s, of {len(trials)}",
            value=100 * late / len(trials), unit="%", goal=5,
        ),
        Figure(name=f"{who}: time to name it, median", value=statistics.median(times), unit="s",
               goal=None),
        Figure(name=f"{who}: the same, p95", value=percentile(times, 0.95), unit="s",
               goal=_GOAL_S),
    ]  # fmt: skip


def _named_after_s(ranks: int, seed: int, noise: Noise) -> float | None:
    """Return when the slow rank is named; None if it is not, or if another one is."""
    slow = random.Random(seed).randrange(ranks)
    slowdowns = {rank: SLOWDOWN if rank == slow else 1.0 for rank in range(ranks)}
    found = first_found_later(seed, slowdowns, healthy=_HEALTHY, windows=2 * WINDOWS, noise=noise)
    if found is None or found[0] < 0 or found[1].rank != slow:
        return None
    return found[0] * _PERIOD_S
