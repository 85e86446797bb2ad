"""Verifies the checkpoints of a job before an attempt starts, on every platform."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.directory import CheckpointDirectory, latest_step
from holdfast.engine.checkpoint_guard import guard
from holdfast.engine.checkpoint_wording import report
from holdfast.model.checkpoints import Depth
from holdfast.model.errors import BackendError

DEPTH_VARIABLE: Final = "HOLDFAST_CHECKPOINT_DEPTH"
"""Environment variable for the depth of the verification in a step of Slurm."""


def prepare(
    folder: Path,
    depth: Depth,
    *,
    is_named: bool = True,
    deeper: str = "set jobs.checkpoint_depth to hashes",
) -> tuple[list[str], int | None]:
    """Make the framework load a complete checkpoint; no process of the job may be left.

    Where verification fails, nothing is changed and the attempt starts.

    Args:
        folder: where the job saves.
        depth: how thoroughly checkpoints are verified.
        is_named: whether somebody named the directory; then an unknown format is reported.
        deeper: what a person does to have checksums compared.

    Returns:
        Lines to report if another checkpoint is loaded than the newest, or something is wrong; and
        the step from which the framework resumes, None if none is known.

    """
    try:
        found = guard(CheckpointDirectory(folder), depth, quiet_since=None)
    except BackendError as error:
        return [str(error)], latest_step(folder)
    lines = report(found, deeper) if found.before.format or is_named else []
    return lines, latest_step(folder)


def prepare_step(folder: Path, environment: Mapping[str, str]) -> tuple[list[str], int | None]:
    """See ``prepare``; the environment of a step of Slurm sets the depth."""
    value = environment.get(DEPTH_VARIABLE, Depth.SIZES.value)
    known = [depth.value for depth in Depth]
    depth = Depth(value) if value in known else Depth.SIZES
    lines, step = prepare(folder, depth, deeper=f"set {DEPTH_VARIABLE}={Depth.HASHES}")
    if value not in known:
        wrong = f"{DEPTH_VARIABLE} is {value!r}, expected {' or '.join(known)}; {depth} is used"
        return [wrong, *lines], step
    return lines, step
