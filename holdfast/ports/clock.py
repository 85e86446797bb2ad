"""Port of the clock."""

from datetime import datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """The engine's only source of time."""

    def now(self) -> datetime:
        """Return the current time, aware, in UTC."""
        ...

    def elapsed(self) -> timedelta:
        """Return the time since an arbitrary moment, by a clock that nobody sets."""
        ...
