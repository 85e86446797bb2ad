"""Detection of a clock that was set."""

from datetime import timedelta
from typing import Final

from holdfast.ports.clock import Clock

_RECENT: Final = timedelta(minutes=3)
"""Time after which an earlier look does not count: others may have written since. Rounds are at
most a minute apart."""


class ClockOffset:
    """Difference between a clock and one that nobody sets."""

    def __init__(self, clock: Clock) -> None:
        """Watch ``clock`` from now on."""
        self._clock = clock
        self._last = clock.now(), clock.elapsed()

    def step(self) -> timedelta:
        """Return by how much the clock was set forward since the last call; negative: back.

        Zero at a call that comes long after the last, or after the construction.
        """
        before, (now, elapsed) = self._last, (self._clock.now(), self._clock.elapsed())
        self._last = now, elapsed
        if elapsed - before[1] > _RECENT:
            return timedelta(0)
        return (now - elapsed) - (before[0] - before[1])
