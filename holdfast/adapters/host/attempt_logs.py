"""Reads the logs of one attempt while its ranks write them, within a limited time."""

import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from holdfast.kit.appended_lines import AppendedLines

_BUDGET_S: Final = 0.2
"""Time of one call, with what is done with the lines, unless one part of each log takes longer. The
same thread detects faults."""

CHUNK_BYTES: Final = 1 << 18
"""Bytes of a part: 0.2 s for 20 log rules, the maximum, and much less for a few."""

_BEHIND: Final = timedelta(minutes=1)


class AttemptLogs:
    """Lines of the logs of an attempt, each read once.

    Args:
        files: the logs, which are read in parts.

    """

    def __init__(self, files: Sequence[AppendedLines]) -> None:
        self._files = files
        self._began_at: datetime | None = None
        self.known_until: datetime | None = None
        """All lines until then were read; None if nothing is known."""

    def read(self, now: datetime, *, is_last: bool = False) -> Iterator[tuple[int, list[str]]]:
        """Yield the number of a log and its next lines, until all are read or time is over.

        Args:
            now: current time.
            is_last: whether nothing more is written, so that a last line may lack its end.

        """
        self._began_at = self._began_at or now
        left, until = [*enumerate(self._files)], time.monotonic() + _BUDGET_S
        while left:
            for number, file in left:
                lines = [line.decode("utf-8", "replace") for line in file.read()]
                if lines:
                    yield number, lines
            left = [(number, file) for number, file in left if file.has_more]
            if time.monotonic() >= until:
                break
        if is_last and not left:
            for number, file in enumerate(self._files):
                if rest := file.take_rest():
                    yield number, [line.decode("utf-8", "replace") for line in rest]
        if self._files and not left:
            self.known_until = now

    def behind(self, now: datetime) -> str:
        """Return why missing lines are no evidence, for people to read; empty if they are."""
        known = self.known_until or self._began_at
        if known is None or now - known < _BEHIND:
            return ""
        return (
            "logs cannot be read, or grow faster than they are read: missing lines do not count as"
            " a hang"
        )
