"""Finds the steps that training frameworks log, in files that a rank writes."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.decisions.step_lines import LogProgress, after_line
from holdfast.kit.appended_lines import AppendedLines
from holdfast.model.jobs import StepReport


class StepLog:
    """Reads each report in the logs of a rank once.

    Args:
        paths: its logs; a line may continue what one of another file began.
        chunk: maximum bytes of a file that are read at a time; lines are skipped if the rank writes
            faster than that.
        offsets: bytes at the beginning of each file that are not read; none if omitted.

    """

    def __init__(self, *paths: Path, chunk: int, offsets: Sequence[int] = ()) -> None:
        starts = offsets or [0] * len(paths)
        self._files = [
            AppendedLines(path, offset=start, chunk=chunk, skips=True)
            for path, start in zip(paths, starts, strict=True)
        ]
        self._progress = LogProgress()

    def read(self) -> Iterator[StepReport]:
        """Yield new reports."""
        for line in (line for file in self._files for line in file.read()):
            self._progress, report = after_line(self._progress, line.decode("utf-8", "replace"))
            if report is not None:
                yield report
