"""History of a checkpoint directory: which attempts resumed from what, and what was moved."""

import json
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.beside import places, write_beside
from holdfast.kit.bounded_files import read_bounded
from holdfast.kit.serial import parse_value, to_plain
from holdfast.model.checkpoints import CheckpointHistory

HISTORY_FILE: Final = ".holdfast-history"
"""Suffix of the file; see ``beside``."""

_LIMIT: Final = 1 << 20
"""Maximum bytes of the file. 200 attempts with long names take 100 KiB."""


def read_history(folder: Path) -> CheckpointHistory:
    """Return the history of a directory; an empty one if there is none or it is not valid.

    Without it, checkpoints are judged by their files alone.
    """
    for path in places(folder, HISTORY_FILE):
        try:
            return parse_value(CheckpointHistory, read_bounded(path, _LIMIT))
        except (OSError, ValueError):
            continue
    return CheckpointHistory()


def write_history(folder: Path, history: CheckpointHistory, *, may_be_inside: bool) -> None:
    """Replace the history of a directory durably.

    Args:
        folder: the checkpoint directory.
        history: new history.
        may_be_inside: whether the framework ignores foreign entries in the directory.

    Raises:
        BackendError: the file cannot be written.

    """
    write_beside(
        folder, HISTORY_FILE, json.dumps(to_plain(history)).encode(), may_be_inside=may_be_inside
    )
