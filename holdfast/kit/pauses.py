"""Pauses before a call is repeated."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause from ``since`` to ``until``, by a clock that may be set."""

    since: datetime
    until: datetime

    def is_over(self, now: datetime) -> bool:
        """Return whether the pause has ended.

        One that would begin in the future was dated by a clock that was ahead and was set back
        since: it is over.
        """
        return not self.since <= now < self.until
