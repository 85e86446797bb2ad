"""Learns how long a job pauses between two steps, and when a longer pause is suspicious. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

WINDOW: Final = 512
"""Number of pauses that are remembered: hours of a job with steps of a minute."""

MIN_PAUSES: Final = 20
"""Number of pauses below which nothing is learned: the first steps compile and warm up."""

_QUANTILE: Final = 0.99
_LONGEST_FACTOR: Final = 2
"""A pause is suspicious beyond this multiple of the longest one: evaluations and checkpoints are
rarer than one in a hundred steps, and take longer from time to time."""

_START_FACTOR: Final = 5
"""A start is suspicious beyond this multiple of the longest one: on new nodes, caches of compiled
kernels and of the data are empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StallLimits:
    """When a pause between two steps is suspicious."""

    factor: float = 10
    floor: timedelta = timedelta(minutes=3)
    start: timedelta = timedelta(hours=1)
    """Time from the start of an attempt to its first step, while no attempt has reached one: large
    models compile, and load checkpoints of terabytes, for tens of minutes. 0 for no such limit."""

    timeout: timedelta | None = None
    """Pause between two steps that is suspicious, instead of what was learned; None to learn."""

    silence: timedelta = timedelta(minutes=10)
    """Time without output, CPU time and accelerator activity of all ranks that is suspicious while
    no steps are known: downloads, and queues for data and licenses, may take minutes. 0 for no such
    limit."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Pauses between two reports of progress of a job, in seconds, oldest first."""

    pauses: tuple[float, ...] = ()

    @property
    def longest(self) -> timedelta:
        """Return the longest known pause."""
        return timedelta(seconds=max(self.pauses, default=0.0))


def after_step(times: StepTimes, pause: timedelta) -> StepTimes:
    """Return what is known after one more pause; the oldest ones are forgotten."""
    return StepTimes((*times.pauses, max(0.0, pause.total_seconds()))[-WINDOW:])


def start_limit(starts: Sequence[float], limits: StallLimits) -> timedelta | None:
    """Return the time to the first step beyond which a job seems to hang; None if there is none.

    That is five times the longest start of earlier attempts, but at least ``floor``.

    Args:
        starts: seconds that earlier attempts took to their first step.
        limits: settings.

    """
    if not starts:
        return limits.start or None
    return max(limits.floor, timedelta(seconds=_START_FACTOR * max(starts)))


def stall_limit(times: StepTimes, limits: StallLimits) -> timedelta | None:
    """Return the pause beyond which a job seems to hang; None while too little is known.

    That is the set ``timeout``, or ``factor`` times the 99th percentile of the pauses, but at least
    ``floor`` and twice the longest pause.
    """
    if limits.timeout is not None:
        return limits.timeout
    if len(times.pauses) < MIN_PAUSES:
        return None
    ordered = sorted(times.pauses)
    usual = ordered[math.ceil(_QUANTILE * len(ordered)) - 1]
    learned = max(limits.factor * usual, _LONGEST_FACTOR * ordered[-1])
    return max(limits.floor, timedelta(seconds=learned))
