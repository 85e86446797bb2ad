"""Moves checkpoints that are files in several directories; see ``CheckpointFormat.parts``."""

import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from holdfast.adapters.checkpoints.plain_files import tree_size
from holdfast.kit.files import sync_directory
from holdfast.model.errors import BackendError


def parts_size(folder: Path, parts: Sequence[str]) -> tuple[int, datetime]:
    """Return bytes and newest modification time of the files of a checkpoint."""
    found = [tree_size(folder / part) for part in parts]
    newest = max((at for _, at in found), default=datetime.fromtimestamp(0, UTC))
    return sum(size for size, _ in found), newest


def move_aside(source: Path, target: Path, parts: Sequence[str]) -> None:
    """Move the files of a checkpoint to the same places in a new directory, on one file system.

    Raises:
        FileNotFoundError: there are none.
        OSError: a file cannot be moved; others may have been. No empty directory is left.

    """
    if not parts:
        raise FileNotFoundError(f"{target.name} has no files in {source}")
    try:
        _move(source, target, parts)
    except OSError:
        _remove_empty(target)
        raise


def release_parts(moved: Path, folder: Path, parts: Sequence[str]) -> None:
    """Move the files of a checkpoint back, unless one of them exists.

    Raises:
        BackendError: a file exists or cannot be moved.

    """
    for part in parts:
        if os.path.lexists(folder / part):
            raise BackendError(
                f"{folder / part} already exists, {moved} was not moved; rename or move it first"
            )
    try:
        _move(moved, folder, parts)
        _remove_empty(moved)
    except OSError as error:
        raise BackendError(f"{moved} cannot be moved to {folder}: {error}") from error


def _move(source: Path, target: Path, parts: Sequence[str]) -> None:
    for part in parts:
        place = target / part
        place.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # done by a concurrent call
            os.rename(source / part, place)
            sync_directory(place.parent)


def _remove_empty(top: Path) -> None:
    """Remove those of a directory and the directories in it that are empty."""
    for folder, _, _ in os.walk(top, topdown=False):
        with suppress(OSError):
            os.rmdir(folder)
