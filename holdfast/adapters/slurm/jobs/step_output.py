"""Output of a supervised step, and why its ranks failed by what they wrote.

The output is read where standard output and standard error of this process, which are those of
srun, are regular files, as in a batch script.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.kit.appended_lines import file_size
from holdfast.kit.bounded_files import end_text

_STDOUT, _STDERR = 1, 2
_ERROR_FILE: Final = "TORCHELASTIC_ERROR_FILE"
OWN_MESSAGES: Final = ("[Auto Resume] ", "holdfast: ")
"""Beginnings of lines that the supervisor writes into the same output."""

_OWN: Final = ("srun: ", *OWN_MESSAGES)
_TAIL_BYTES: Final = 1 << 18
"""Bytes at the end of the output to search for an exception: tracebacks of many ranks."""


def output_files() -> Iterator[Path]:
    """Yield the regular files among standard output and standard error, each once."""
    seen = set()
    for descriptor in (_STDOUT, _STDERR):
        try:
            status = os.fstat(descriptor)
        except OSError:
            continue
        known = (status.st_dev, status.st_ino)
        if stat.S_ISREG(status.st_mode) and known not in seen:
            seen.add(known)
            yield Path(f"/proc/self/fd/{descriptor}")


def is_output_in_files() -> bool:
    """Whether standard output and standard error are both regular files."""
    with suppress(OSError):
        return all(stat.S_ISREG(os.fstat(one).st_mode) for one in (_STDOUT, _STDERR))
    return False


class StepCrash:
    """Finds why the ranks of an attempt failed.

    Args:
        environment: of the step; may name the file in which torchrun stores the exception of the
            rank that failed first, on a file system that all nodes share.

    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._error_file = environment.get(_ERROR_FILE, "")
        self._written: tuple[int, int] | None = None
        self._offsets: dict[Path, int] = {}

    def begin(self) -> None:
        """Begin an attempt: what is in the files before is of earlier ones."""
        self._offsets = {path: file_size(path) for path in output_files()}
        self._written = _written(self._error_file)

    def text(self) -> str:
        """Return the exception that the ranks failed with; empty if none was found."""
        from holdfast.decisions.crash_text import crash_text, error_file_text  # noqa: PLC0415 - after a failure only

        if _written(self._error_file) != self._written:
            found = error_file_text(end_text(self._error_file, _TAIL_BYTES))
            if found:
                return found
        tails = [_tail(path, offset) for path, offset in self._offsets.items()]
        texts = (crash_text(text) for text in (*map(_of_ranks, tails), *tails))
        return next(filter(None, texts), "")


def _of_ranks(text: str) -> str:
    """Return output without the lines of srun and its supervisor: they may be in a traceback."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith(_OWN))


def _written(path: str) -> tuple[int, int] | None:
    """Return what identifies the content of a file; None if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _tail(path: Path, offset: int) -> str:
    """Return the end of what the output has beyond an offset; empty if it cannot be read."""
    try:
        with path.open("rb") as file:  # a link below /proc, which ``read_end`` does not follow
            file.seek(max(offset, file_size(path) - _TAIL_BYTES))
            return file.read(_TAIL_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
