"""Detects ranks that report no more progress in ``$HOLDFAST_PROGRESS_FILE``."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

_CHECKS_PER_TIMEOUT: Final = 10


@dataclass(slots=True)
class _Report:
    path: str
    size: int
    changed_at: float
    has_begun: bool = False


class ProgressWatch:
    """Progress of the ranks of one round.

    A rank appends a line to its file after each step. One that never does is not watched, and the
    time until the first report of a round has no limit: a start may take long.
    """

    def __init__(self, timeout: timedelta) -> None:
        self._timeout_s = timeout.total_seconds()
        self._reports: dict[int, _Report] = {}
        self._check_at = 0.0

    def begin(self, paths: Mapping[int, str]) -> None:
        """Watch the files of a new round, by local rank."""
        now = time.monotonic()
        self._reports = {rank: _Report(path, _size(path), now) for rank, path in paths.items()}
        self._check_at = now

    def next_call(self) -> float | None:
        """Return the monotonic time of the next call of ``stalled``; None if none is watched."""
        return self._check_at if self._reports else None

    def stalled(self) -> int | None:
        """Return a local rank without progress for the timeout; None if there is none."""
        now = time.monotonic()
        if now < self._check_at:
            return None
        self._check_at = now + self._timeout_s / _CHECKS_PER_TIMEOUT
        for report in self._reports.values():
            size = _size(report.path)
            if size != report.size:
                report.size, report.changed_at, report.has_begun = size, now, True
        late = [
            (report.changed_at, rank)
            for rank, report in self._reports.items()
            if report.has_begun and now - report.changed_at >= self._timeout_s
        ]
        return min(late)[1] if late else None


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
