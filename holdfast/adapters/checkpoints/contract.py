"""Contract of checkpoint formats."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from holdfast.adapters.checkpoints.plain_files import Entry
from holdfast.model.checkpoints import Checkpoint, CheckpointState, Depth, Pointer, Problem

Names = Mapping[str, Entry]
"""Entries of a directory by name."""


class CannotVerify(Exception):
    """The checkpoint has a form that cannot be verified; the message gives the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Checkpoints of one format in a directory."""

    checkpoints: tuple[Checkpoint, ...]
    """In the framework's order of preference."""

    pointer: Pointer = field(default_factory=Pointer)
    """File or link that selects the checkpoint to load; kind ``none`` by default."""


Find = Callable[[Path, Names], Found | None]
"""Returns the checkpoints in a directory with these entries; None if it has none of the format.

Cheap: reads names and the start of small files. Raises OSError.
"""

Check = Callable[[Path, Depth, Path | None], Iterator[Problem]]
"""Yields the problems of a checkpoint; the third argument is the next older checkpoint.

Raises OSError and ``CannotVerify``.
"""

Repoint = Callable[[Path, str], None]
"""Points the tracker or link of a directory to a checkpoint; idempotent. Raises OSError."""

Parts = Callable[[Path, str], tuple[str, ...]]
"""Returns the files of a checkpoint by its name, as paths relative to the directory; none if it
does not exist. Raises OSError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFormat:
    """Checkpoint format, with its detection, verification and rollback."""

    name: str
    """Value of ``--format``."""

    title: str
    """Framework that writes it."""

    find: Find
    """Returns the checkpoints in a directory; None if it has none of the format. See ``Find``."""

    check: Check
    """Yields the problems of a checkpoint, with the older one to compare. See ``Check``."""

    repoint: Repoint | None = None
    """Points the tracker or link to a checkpoint; None if the framework has neither."""

    parts: Parts | None = None
    """Returns the files of a checkpoint that is files in several directories; None if each
    checkpoint is one file or directory."""

    is_strict: bool = False
    """Whether the framework fails on foreign directory entries; then nothing is put there."""

    script_chooses: bool = False
    """Whether the user's script, not a framework, chooses the checkpoint to load."""

    recognized_by: str
    """File names by which the format is detected, for the documentation."""

    complete_when: str
    """Evidence that a save completed, for the documentation."""

    loads: str
    """Which checkpoint the framework loads."""

    not_detected: str
    """Damage that is not visible in the files."""


def candidate(
    entry: Entry, step: int | None, *, is_ended: bool, name: str = "", group: str = ""
) -> Checkpoint:
    """Return a found checkpoint that is not verified yet."""
    return Checkpoint(
        name=name or entry.name,
        step=step,
        is_ended=is_ended,
        group=group,
        changed_at=_time(entry.changed_at),
    )


def incomplete(text: str) -> Problem:
    """Return the problem of a save that did not complete."""
    return Problem(text=text, state=CheckpointState.INCOMPLETE)


def damaged(text: str) -> Problem:
    """Return the problem of a checkpoint whose content differs from what was saved."""
    return Problem(text=text, state=CheckpointState.DAMAGED)


def unknown(text: str) -> Problem:
    """Return the problem of a file that cannot be verified, beside others that can be."""
    return Problem(text=text, state=CheckpointState.UNKNOWN)


def within(name: str, problem: Problem) -> Problem:
    """Return the problem with the name of its file or directory prepended."""
    return replace(problem, text=f"{name}{problem.text}")


def _time(seconds: float) -> datetime:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC)
