"""What a job says of its own progress in ``$HOLDFAST_PROGRESS_FILE``.

The job appends one decimal number and a newline whenever it has done a step; the first number of an
attempt is the step that it resumed from. Appending so little is atomic and costs microseconds.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

_LINE_BYTES: Final = 64
"""More than any line can need: a step of 64 bits has 19 digits."""


@dataclass(frozen=True, slots=True)
class Progress:
    """First and last step of an attempt; None where the job reports none."""

    first: int | None = None
    last: int | None = None


def read_progress(path: Path) -> Progress:
    """Read the file; one that is missing, empty or holds something else gives no progress."""
    try:
        with path.open("rb") as file:
            head = file.read(_LINE_BYTES)
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _LINE_BYTES))
            tail = file.read()
    except OSError:
        return Progress()
    first, newline, _ = head.partition(b"\n")
    lines = tail.rpartition(b"\n")[0].rsplit(b"\n", 1)
    return Progress(_number(first if newline else b""), _number(lines[-1]))


def _number(text: bytes) -> int | None:
    stripped = text.strip()
    return int(stripped) if stripped.isdigit() else None
