"""Why a rank has ended, as its files show."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from holdfast.decisions.crash_text import crash_text, error_file_text
from holdfast.kit.bounded_files import end_text

_TAIL_BYTES: Final = 65536


def crash_of(error_file: Path) -> str:
    """Return the exception of a rank from its error file or its log; empty if there is none."""
    found = error_file_text(end_text(error_file, _TAIL_BYTES))
    return found or crash_text(end_text(error_file.with_name("stderr.log"), _TAIL_BYTES))


def rerun_of(command: Sequence[str], rank: int, error_file: Path) -> str:
    """Return why a rank of Megatron has exited on purpose; that of a crash if it reports none.

    Args:
        command: command of the rank, which may name the file of Megatron's results.
        rank: the rank.
        error_file: its error file.

    """
    from holdfast.decisions.rerun_results import rerun_text, result_file  # noqa: PLC0415 - Megatron's exit codes only

    file = result_file(command)
    found = rerun_text(end_text(file, _TAIL_BYTES), rank) if file else ""
    return found or crash_of(error_file)
