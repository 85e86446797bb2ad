"""Since when a process can read the cluster: reports that could not arrive before are not late."""

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

_OUTAGE_S: Final = 10.0
"""Seconds without a successful read that count as an outage. Leases are read again after 5 s, so in
a shorter one the API server was unavailable for 15 s at most: leases, which agents and kubelets
renew every 10 s, are then 25 s old, which is no silence yet."""

_FAILURES: Final = 2
"""Reads in a row that must have failed: one lost call in a minute is no outage."""


class Contact:
    """Follows the reads of one process.

    An outage ends the leadership of a process, which reads nothing until it leads again.
    """

    def __init__(
        self, elected: Callable[[], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Create it.

        Args:
            elected: returns how many times this process was elected.
            clock: returns seconds that no change of the wall clock affects.

        """
        self._elected = elected
        self._clock = clock
        self._elected_for: int | None = None
        self._resumed_at = self._read_at = clock()
        self._failures = 0

    def begin(self, now: datetime) -> datetime:
        """Begin to read; returns since when there was no outage, this read included."""
        clock, elected = self._clock(), self._elected()
        is_outage = self._failures >= _FAILURES and clock - self._read_at >= _OUTAGE_S
        if is_outage or elected != self._elected_for:
            self._resumed_at, self._elected_for = clock, elected
        self._failures += 1  # unless ``succeeded`` is called
        return now - timedelta(seconds=clock - self._resumed_at)

    def succeeded(self) -> None:
        """Record that the read succeeded."""
        self._failures, self._read_at = 0, self._clock()
