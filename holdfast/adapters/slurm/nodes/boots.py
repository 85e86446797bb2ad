"""Whether a slurmd is the one of before, by what ``NodeFacts.slurmd`` tells of it: pure."""

from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

_SLACK: Final = timedelta(seconds=5)
"""slurmd takes the time of day less the whole seconds that the machine is up for the time of its
boot, anew with every registration: it differs by a second, and by more where the clock was set."""


def is_other_boot(now: str, before: str) -> bool:
    """Whether the machine has booted in between; False while either is not known.

    Args:
        now: ``NodeFacts.slurmd``.
        before: the same at another time.

    """
    booted, was = now.partition("/")[0], before.partition("/")[0]
    return bool(booted) and bool(was) and booted != was and not _is_about(booted, was)


def is_other_slurmd(now: str, before: str) -> bool:
    """Whether slurmd, or its machine, began anew in between; arguments as in ``is_other_boot``."""
    started, was = now.partition("/")[2], before.partition("/")[2]
    return is_other_boot(now, before) or (bool(started) and bool(was) and started != was)


@lru_cache(maxsize=16_384)
def _is_about(booted: str, was: str) -> bool:
    try:
        return abs(datetime.fromisoformat(booted) - datetime.fromisoformat(was)) <= _SLACK
    except ValueError:  # SLURM_TIME_FORMAT has it written in another way
        return False
