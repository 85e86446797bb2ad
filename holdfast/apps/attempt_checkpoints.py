"""Verifies the checkpoints of a job before an attempt starts, on every platform."""

from pathlib import Path

from holdfast.adapters.checkpoints.directory import CheckpointDirectory, latest_step
from holdfast.engine.checkpoint_guard import guard
from holdfast.engine.checkpoint_wording import summary
from holdfast.model.checkpoints import Depth
from holdfast.model.errors import BackendError


def prepare(folder: Path, *, is_named: bool = True) -> tuple[str | None, int | None]:
    """Make the framework load a complete checkpoint; no process of the job may be left.

    Checkpoints are verified by sizes. Where that fails, nothing is changed and the attempt starts.

    Args:
        folder: where the job saves.
        is_named: whether somebody named the directory; then an unknown format is reported.

    Returns:
        One sentence if another checkpoint is loaded than the newest, or something is wrong; and
        the step from which the framework resumes, None if none is known.

    """
    try:
        found = guard(CheckpointDirectory(folder), Depth.SIZES, quiet_since=None)
    except BackendError as error:
        return str(error), latest_step(folder)
    text = summary(found) if found.before.format or is_named else None
    return text, latest_step(folder)
