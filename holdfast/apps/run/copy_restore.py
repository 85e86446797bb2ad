"""Restores a copy before an attempt if the directory of a job has no good checkpoint left."""

from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.adapters.checkpoints.files import DirectoryFiles
from holdfast.adapters.copies.table import open_copies
from holdfast.apps.clock import SystemClock
from holdfast.engine.checkpoint_guard import GuardResult
from holdfast.engine.checkpoint_mirror import CheckpointMirror
from holdfast.model.errors import HoldfastError

COPIES_VARIABLE = "HOLDFAST_CHECKPOINT_COPIES"
"""Environment variable with the location of the copies, outside of ``holdfast run``."""


def mirror_of(
    folder: Path,
    location: str,
    format_name: str | None = None,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> CheckpointMirror:
    """Return the copies of a directory in a location.

    Raises:
        ConfigError: the format does not exist, or the location is not valid.

    """
    return CheckpointMirror(
        CheckpointDirectory(folder, format_name),
        DirectoryFiles(folder),
        open_copies(location),
        SystemClock(),
        on_bytes,
    )


def restore_newest(
    store: CheckpointDirectory, found: GuardResult, location: str
) -> tuple[bool, list[str], Mapping[str, str]]:
    """Move the broken checkpoints away and restore the newest copy that is not damaged.

    Args:
        store: the directory, after its survey.
        found: what was found in it; no process may be writing to it.
        location: where the copies are.

    Returns:
        Whether a copy was restored, lines for people, and the new locations of the broken
        checkpoints, by name.

    """
    folder = found.before.folder
    broken = [one.name for one in found.before.checkpoints if one.is_broken]
    moved: Mapping[str, str] = {}
    try:
        mirror = mirror_of(Path(folder), location)
        if not mirror.copies():
            why = f"{folder}: nothing was restored: {location} has no complete copy"
            return False, [why], moved
        moved = store.apply(None, broken) if broken else moved
        copy, damaged = mirror.restore()
    except HoldfastError as error:
        return False, [f"{folder}: nothing was restored: {error}"], moved
    lines = [f"{folder}: {name} is broken; moved to {place}" for name, place in moved.items()]
    text = f"{folder}: no good checkpoint was left; {copy.name} was restored from {location}"
    return True, [*lines, *damaged, text], moved
