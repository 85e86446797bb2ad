"""The system's clock."""

import time
from datetime import UTC, datetime, timedelta


class SystemClock:
    """The one place from which the time enters a real process."""

    def now(self) -> datetime:
        """See ``Clock.now``."""
        return datetime.now(UTC)

    def elapsed(self) -> timedelta:
        """See ``Clock.elapsed``."""
        return timedelta(seconds=time.monotonic())
