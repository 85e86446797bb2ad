"""Reads the progress that a job reports in ``$HOLDFAST_PROGRESS_FILE``.

The job appends one decimal number and a newline after each step; the first number of an attempt is
the step that it resumed from. The loss of the step may follow, after a space. Such a short append
is atomic and takes microseconds.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.kit.appended_lines import AppendedLines
from holdfast.kit.bounded_files import open_regular
from holdfast.model.jobs import StepReport

_LINE_BYTES: Final = 64
"""Maximum bytes of a line: a step of 64 bits has 19 digits, a loss of 64 bits 24."""


@dataclass(frozen=True, slots=True)
class Progress:
    """First and last step of an attempt; None if the job reports none."""

    first: int | None = None
    last: int | None = None


class ReportReader:
    """Reads each report of a file once."""

    def __init__(self, path: Path, *, offset: int = 0) -> None:
        """Skip the first ``offset`` bytes of the file, which need not exist."""
        self._lines = AppendedLines(path, offset=offset)

    def read(self) -> Iterator[StepReport]:
        """Yield new reports; none if the file is missing. Lines that are not valid are ignored."""
        for line in self._lines.read():
            report = _report(line)
            if report is not None:
                yield report


def read_progress(path: Path) -> Progress:
    """Return the progress in a file; none if it is missing, empty or invalid."""
    try:
        with open_regular(path) as (handle, status):
            head = os.pread(handle, _LINE_BYTES, 0)
            tail = os.pread(handle, 2 * _LINE_BYTES, max(0, status.st_size - 2 * _LINE_BYTES))
    except OSError:
        return Progress()
    first, newline, _ = head.partition(b"\n")
    lines = tail.rpartition(b"\n")[0].rsplit(b"\n", 1)
    return Progress(_step(first if newline else b""), _step(lines[-1]))


def _step(line: bytes) -> int | None:
    report = _report(line)
    return None if report is None else report.step


def _report(line: bytes) -> StepReport | None:
    if len(line) > _LINE_BYTES:
        return None
    number, *loss = line.split()[:2] or [b""]
    if not number.isdigit():
        return None
    try:
        return StepReport(step=int(number), loss=float(loss[0]) if loss else None)
    except ValueError:
        return StepReport(step=int(number))
