"""Why a rank has ended, as its files show."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from holdfast.decisions.crash_text import crash_text, error_file_text
from holdfast.kit.bounded_files import end_text

TAIL_BYTES: Final = 65536
"""Of a file, and of the standard error of a rank, that are read."""


def crash_of(error_file: Path, stderr: str) -> str:
    """Return the exception of a rank from its error file or its output; empty if there is none.

    Args:
        error_file: file of PyTorch's ``@record``, which may be missing.
        stderr: end of the standard error.

    """
    return error_file_text(end_text(error_file, TAIL_BYTES)) or crash_text(stderr)


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
