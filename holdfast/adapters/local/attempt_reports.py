"""Steps and losses that one attempt has reported: in the progress file, else in its logs."""

import os
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from holdfast.adapters.local.layout import RunDir
from holdfast.adapters.local.progress import Progress, ReportReader, read_progress
from holdfast.decisions.loss_faults import LossHistory, LossLimits, after_report
from holdfast.decisions.step_lines import LogProgress, after_line
from holdfast.kit.bounded_files import open_regular, read_end
from holdfast.kit.files import write_atomically
from holdfast.model.jobs import StepReport

_CHUNK_BYTES: Final = 1 << 20
"""Maximum bytes of a log that are read at a time: a few milliseconds."""

_RATE_WINDOW: Final = timedelta(minutes=5)
"""Time over which the step rate is the mean."""

_RATE_PERIOD: Final = timedelta(seconds=5)
"""Time between two writes of the step rate."""


class AttemptReports:
    """Reads each report of an attempt once.

    Args:
        own: directory of the job.
        attempt: number of the attempt.
        nodes: number of nodes of the job.
        limits: when a loss is a fault.

    """

    def __init__(self, own: RunDir, attempt: int, nodes: int, limits: LossLimits) -> None:
        self.attempt = attempt
        self.losses = LossHistory()
        self._limits = limits
        self._path = own.progress(attempt)
        self._file = ReportReader(self._path)
        self._logs = [_LogReader(own.log(attempt, rank)) for rank in range(nodes)]
        self._logged = Progress()
        self._rate_file = own.step_rate(attempt)
        self._steps: deque[tuple[datetime, int]] = deque()
        self._rate_at: datetime | None = None

    def read(self, now: datetime) -> Progress:
        """Return the progress so far."""
        for report in self._file.read():
            self.losses = after_report(self.losses, report, self._limits)
        progress = read_progress(self._path)
        if progress.last is None:
            for report in (report for log in self._logs for report in log.read()):
                self.losses = after_report(self.losses, report, self._limits)
                self._logged = _extended(self._logged, report)
            progress = self._logged
        if progress.last is not None:
            self._note(now, progress.last)
        return progress

    def _note(self, now: datetime, step: int) -> None:
        """Store the step rate from time to time, for other processes."""
        if not self._steps or self._steps[-1][1] != step:
            self._steps.append((now, step))
        while len(self._steps) > 1 and self._steps[0][0] < now - _RATE_WINDOW:
            self._steps.popleft()
        rate = _rate(self._steps)
        if rate is None or (self._rate_at is not None and now < self._rate_at + _RATE_PERIOD):
            return
        self._rate_at = now
        with suppress(OSError):  # a full disk loses the rate, nothing else
            write_atomically(self._rate_file, f"{rate:.6g}\n")


def attempt_progress(own: RunDir, attempt: int, nodes: int) -> Progress:
    """Return the progress of an attempt that another process watches."""
    found = read_progress(own.progress(attempt))
    if found.last is not None:
        return found
    for rank in range(nodes):
        for report in _LogReader(own.log(attempt, rank)).ends():
            found = _extended(found, report)
    return found


def read_step_rate(own: RunDir, attempt: int) -> float | None:
    """Return the steps per second of an attempt, as last stored; None if unknown."""
    try:
        return float(read_end(own.step_rate(attempt), 64))
    except (OSError, ValueError):
        return None


class _LogReader:
    """Finds the reports in the log of a rank. A progress bar ends its lines with a CR."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""
        self._progress = LogProgress()

    def read(self) -> Iterator[StepReport]:
        """Yield new reports."""
        data = self._chunk(self._offset)
        self._offset += len(data)
        *lines, rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        self._rest = rest[-_CHUNK_BYTES:]
        yield from self._reports(lines)

    def ends(self) -> Iterator[StepReport]:
        """Yield the reports at the beginning and at the end of the log."""
        yield from self._reports(self._chunk(0).replace(b"\r", b"\n").split(b"\n"))
        with suppress(OSError):
            yield from self._reports(
                read_end(self._path, _CHUNK_BYTES).replace(b"\r", b"\n").split(b"\n")
            )

    def _chunk(self, offset: int) -> bytes:
        try:
            with open_regular(self._path) as (handle, _):
                return os.pread(handle, _CHUNK_BYTES, offset)
        except OSError:
            return b""

    def _reports(self, lines: list[bytes]) -> Iterator[StepReport]:
        for line in lines:
            self._progress, report = after_line(self._progress, line.decode("utf-8", "replace"))
            if report is not None:
                yield report


def _extended(progress: Progress, report: StepReport) -> Progress:
    if progress.first is None or progress.last is None:
        return Progress(report.step, report.step)
    return replace(progress, last=max(progress.last, report.step))


def _rate(steps: deque[tuple[datetime, int]]) -> float | None:
    if len(steps) < 2:
        return None
    (began, first), (ended, last) = steps[0], steps[-1]
    seconds = (ended - began).total_seconds()
    return (last - first) / seconds if seconds > 0 and last > first else None
