"""Detection of a clock that was set."""

from datetime import datetime, timedelta

from holdfast.ports.clock import Clock


class ClockOffset:
    """Difference between a clock and one that nobody sets."""

    def __init__(self, clock: Clock) -> None:
        """Watch ``clock``."""
        self._clock = clock
        self._offset: datetime | None = None

    def step(self) -> timedelta:
        """Return by how much the clock was set forward since the last call; negative: back."""
        before, self._offset = self._offset, self._clock.now() - self._clock.elapsed()
        return timedelta(0) if before is None else self._offset - before
