"""A clock for timeouts within one process."""

import time
from datetime import UTC, datetime, timedelta


class SteadyClock:
    """Starts at the time of the system; unlike that, it is never set."""

    def __init__(self) -> None:
        self._origin = datetime.now(UTC) - timedelta(seconds=time.monotonic())

    def now(self) -> datetime:
        """Return the time, aware, in UTC."""
        return self._origin + timedelta(seconds=time.monotonic())
