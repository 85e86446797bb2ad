"""The system's clock."""

from datetime import UTC, datetime


class SystemClock:
    """The one place from which the time enters a real process."""

    def now(self) -> datetime:
        """See ``Clock.now``."""
        return datetime.now(UTC)
