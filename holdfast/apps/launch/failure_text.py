"""Why a rank has ended, as its files show."""

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from holdfast.decisions.crash_text import SHOWN_CHARS, crash_text, error_file_text
from holdfast.kit.bounded_files import end_text
from holdfast.kit.units import one_line

TAIL_BYTES: Final = 65536
"""Of a file, and of the standard error of a rank, that are read."""


def exit_text(code: int) -> str:
    """Return an exit code in words, such as ``exit code 1`` or ``signal 9 (SIGKILL)``."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"signal {-code}"


def crash_of(error_file: Path, stderr: str) -> str:
    """Return the exception of a rank from its error file or its output; empty if there is none.

    Args:
        error_file: file of PyTorch's ``@record``, which may be missing.
        stderr: end of the standard error.

    """
    return error_file_text(end_text(error_file, TAIL_BYTES)) or crash_text(stderr)


def described(code: int, reason: str, stderr: str) -> str:
    """Return how a rank has ended, with its exception, or else the last line that it wrote."""
    text = exit_text(code)
    if reason:
        return f"{text}: {reason}"
    last = next((line for line in reversed(stderr.splitlines()) if line.strip()), "")
    return f"{text}; last line: {one_line(last, SHOWN_CHARS)}" if last and code > 0 else text


def rerun_of(command: Sequence[str], rank: int, crash: str) -> str:
    """Return why a rank of Megatron has exited on purpose; that of a crash if it reports none.

    Args:
        command: command of the rank, which may name the file of Megatron's results.
        rank: the rank.
        crash: its exception, see ``crash_of``.

    """
    from holdfast.decisions.rerun_results import rerun_text, result_file  # noqa: PLC0415 - Megatron's exit codes only

    file = result_file(command)
    found = rerun_text(end_text(file, TAIL_BYTES), rank) if file else ""
    return found or crash
