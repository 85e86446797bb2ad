"""Detects restarts of a slurmd or of its machine from ``NodeFacts.slurmd``. Pure."""

from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

_SLACK: Final = timedelta(seconds=5)
"""Tolerance for boot times: slurmd computes its boot time with every registration, as the time of
day less the uptime in whole seconds. It varies by a second, and by more if the clock was set."""


def is_other_boot(now: str, before: str) -> bool:
    """Whether the machine has rebooted in between; False while either value is unknown.

    Args:
        now: ``NodeFacts.slurmd``.
        before: the same value at an earlier time.

    """
    booted, was = now.partition("/")[0], before.partition("/")[0]
    return bool(booted) and bool(was) and booted != was and not _is_about(booted, was)


def is_other_slurmd(now: str, before: str) -> bool:
    """Whether slurmd, or its machine, restarted in between; arguments as in ``is_other_boot``."""
    started, was = now.partition("/")[2], before.partition("/")[2]
    return is_other_boot(now, before) or (bool(started) and bool(was) and started != was)


@lru_cache(maxsize=16_384)
def _is_about(booted: str, was: str) -> bool:
    try:
        return abs(datetime.fromisoformat(booted) - datetime.fromisoformat(was)) <= _SLACK
    except ValueError:  # SLURM_TIME_FORMAT changes the format
        return False
