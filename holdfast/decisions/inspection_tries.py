"""How often and for how long a suspected hang is inspected, on every platform: pure.

Snapshots take longer on a node without free CPU time. A hang that is only reported is inspected
again, each time for twice as long, while a rank that may be its cause was not read. A hang that
restarts the ranks is inspected once: its restart does not wait.
"""

from datetime import timedelta
from typing import Final

from holdfast.decisions.flight_recorder import RankFindings

LIMIT: Final = timedelta(seconds=10)
"""Maximum time of the first inspection of a hang: snapshots take up to 8 s; the rest is for
starting the program that takes them, and for the messages. Each further one has twice the time."""

TRIES: Final = 3
"""Inspections of one hang that is only reported. The last one may take 40 s."""


def limit_of(tries: int) -> timedelta:
    """Return the maximum time of an inspection, the first of a hang being number 1."""
    return LIMIT * (1 << (min(tries, TRIES) - 1))


def deadline_of(*, restarts: bool) -> timedelta:
    """Return the maximum time from the suspicion to the verdict.

    Args:
        restarts: whether a restart waits for the verdict.

    """
    if restarts:
        return LIMIT
    return sum((limit_of(tries) for tries in range(1, TRIES + 1)), timedelta())


def is_incomplete(seen: RankFindings) -> bool:
    """Return whether the time was over before a rank was read."""
    return any(snapshot.is_unread for snapshot in seen.snapshots)


def is_repeated(*, names_rank: bool, is_incomplete: bool, tries: int, restarts: bool) -> bool:
    """Return whether a hang is inspected once more.

    Args:
        names_rank: whether the verdict names the rank that the others wait for.
        is_incomplete: whether a rank was not read in time, or nothing was seen by then.
        tries: number of inspections of this hang so far.
        restarts: whether a restart waits for the verdict.

    """
    return is_incomplete and not names_rank and not restarts and tries < TRIES
