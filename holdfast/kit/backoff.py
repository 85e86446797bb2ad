"""Exponential backoff. Pure: the caller counts the failures and draws the jitter."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

_DOUBLINGS: Final = 60  # a microsecond becomes 36,000 years; more could overflow a float


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays between retries: ``first`` after one failure, doubling up to ``longest``."""

    first: timedelta
    longest: timedelta

    def delay(self, failures: int, jitter: float = 0.0) -> timedelta:
        """Return the delay before the next attempt.

        Args:
            failures: failures in a row; there is no delay without one.
            jitter: a random number from 0 to 1. The delay is shortened by up to half in proportion
                to it, so that several clients do not retry at the same time.

        """
        if failures <= 0:
            return timedelta(0)
        doubled_s = self.first.total_seconds() * 2.0 ** min(failures - 1, _DOUBLINGS)
        longest_s = self.longest.total_seconds()
        return timedelta(seconds=min(doubled_s, longest_s) * (1 - jitter / 2))
