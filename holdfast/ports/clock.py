"""Port of the clock."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """The engine's only source of time."""

    def now(self) -> datetime:
        """Return the current time, aware, in UTC."""
        ...
