"""Learns how often a job saves checkpoints, and when a longer pause is suspicious. Pure."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from holdfast.decisions.step_times import StepTimes, after_step

_MIN_INTERVALS: Final = 3
"""Number of intervals below which nothing is learned."""

_FACTOR: Final = 3
"""A pause is suspicious beyond this multiple of the longest interval. An interval has many steps,
so intervals differ less than steps do; an evaluation between two saves at most doubles it."""

NO_SAVE: Final = datetime.min.replace(tzinfo=UTC)
"""Time of the newest checkpoint of a directory without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveTimes:
    """Checkpoints of the present attempt, and the intervals of it and of earlier ones."""

    newest: datetime | None = None
    """Time of the newest checkpoint, as its files have it; None before the first look."""

    seen_at: datetime | None = None
    """Time at which a checkpoint of this attempt was last seen to change; None before the first."""

    began_at: datetime | None = None
    """Time at which the last save was first seen."""

    intervals: StepTimes = StepTimes()


def after_survey(saves: SaveTimes, newest: datetime, now: datetime, floor: timedelta) -> SaveTimes:
    """Return what is known after a look at the directory.

    A checkpoint that is there at the first look was saved by an earlier attempt. Changes within
    ``floor`` belong to one save, which may write for minutes.

    Args:
        saves: what was known before.
        newest: time of the newest checkpoint, as its files have it, or ``NO_SAVE``.
        now: current time.
        floor: minimum pause that is suspicious.

    """
    if saves.newest is None:
        return replace(saves, newest=newest)
    if newest <= saves.newest:
        return saves
    if saves.began_at is None:
        return replace(saves, newest=newest, seen_at=now, began_at=now)
    interval = now - saves.began_at
    if interval < floor:
        return replace(saves, newest=newest, seen_at=now)
    intervals = after_step(saves.intervals, interval)
    return replace(saves, newest=newest, seen_at=now, began_at=now, intervals=intervals)


def save_limit(saves: SaveTimes, floor: timedelta) -> timedelta | None:
    """Return the pause beyond which a job seems to hang; None while too little is known."""
    if len(saves.intervals.pauses) < _MIN_INTERVALS:
        return None
    return max(floor, _FACTOR * saves.intervals.longest)
