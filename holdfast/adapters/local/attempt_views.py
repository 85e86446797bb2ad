"""Reads progress, step rate and stragglers of an attempt that another process watches.

Lists of jobs show no more of an attempt, so they need not import what watches and samples jobs.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.adapters.host.attempt_logs import CHUNK_BYTES
from holdfast.adapters.host.progress_file import Progress, read_progress
from holdfast.adapters.local.layout import RunDir
from holdfast.decisions.logged_steps import LoggedSteps, after_lines
from holdfast.decisions.loss_faults import LossLimits
from holdfast.kit.appended_lines import AppendedLines
from holdfast.kit.bounded_files import read_end

_TEXT_BYTES: Final = 4096


def attempt_progress(own: RunDir, attempt: int, nodes: int) -> Progress:
    """Return the progress of an attempt that another process watches."""
    found = read_progress(own.progress(attempt))
    if found.last is not None:
        return found
    steps = LoggedSteps()
    for rank in range(nodes):
        steps = after_lines(steps, rank, _ends(own.log(attempt, rank)), LossLimits())
    return Progress(steps.first, steps.last)


def read_step_rate(own: RunDir, attempt: int) -> float | None:
    """Return the steps per second of an attempt, as last stored; None if unknown."""
    try:
        return float(read_end(own.step_rate(attempt), 64))
    except (OSError, ValueError):
        return None


def read_stragglers(file: Path) -> str:
    """Return the stored report of an attempt's stragglers; empty if no samples were taken."""
    try:
        return read_end(file, _TEXT_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _ends(log: Path) -> Iterator[str]:
    """Yield the first and the last lines of a log."""
    yield from _text(AppendedLines(log).read())
    with suppress(OSError):
        yield from _text(read_end(log, CHUNK_BYTES).replace(b"\r", b"\n").split(b"\n"))


def _text(lines: Iterable[bytes]) -> Iterator[str]:
    return (line.decode("utf-8", "replace") for line in lines)
