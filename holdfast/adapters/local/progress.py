"""Reads the progress that a job reports in ``$HOLDFAST_PROGRESS_FILE``.

The job appends one decimal number and a newline after each step; the first number of an attempt is
the step that it resumed from. Such a short append is atomic and takes microseconds.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.kit.bounded_files import open_regular

_LINE_BYTES: Final = 64
"""Maximum bytes of a line: a step of 64 bits has 19 digits."""


@dataclass(frozen=True, slots=True)
class Progress:
    """First and last step of an attempt; None if the job reports none."""

    first: int | None = None
    last: int | None = None


def read_progress(path: Path) -> Progress:
    """Return the progress in a file; none if it is missing, empty or invalid."""
    try:
        with open_regular(path) as (handle, status):
            head = os.pread(handle, _LINE_BYTES, 0)
            tail = os.pread(handle, _LINE_BYTES, max(0, status.st_size - _LINE_BYTES))
    except OSError:
        return Progress()
    first, newline, _ = head.partition(b"\n")
    lines = tail.rpartition(b"\n")[0].rsplit(b"\n", 1)
    return Progress(_number(first if newline else b""), _number(lines[-1]))


def _number(text: bytes) -> int | None:
    stripped = text.strip()
    return int(stripped) if stripped.isdigit() else None
