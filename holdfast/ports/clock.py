"""The time."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Tells the time; the only source of it for the engine."""

    def now(self) -> datetime:
        """The present time, aware, in UTC."""
        ...
