"""What a checkpoint format is."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from holdfast.adapters.checkpoints.plain_files import Entry
from holdfast.model.checkpoints import Checkpoint, CheckpointState, Depth, Pointer, Problem

Names = Mapping[str, Entry]
"""Entries of a directory by name."""


class CannotVerify(Exception):
    """A checkpoint is of a form that cannot be verified; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Checkpoints of one format in a directory."""

    checkpoints: tuple[Checkpoint, ...]
    """In the order in which the framework prefers them."""

    pointer: Pointer = field(default_factory=Pointer)


Find = Callable[[Path, Names], Found | None]
"""Checkpoints of the format in a directory with these entries; None if it holds none of it.

Cheap: names, and heads of small files. Raises OSError.
"""

Check = Callable[[Path, Depth, Path | None], Iterator[Problem]]
"""What is wrong with one checkpoint; the third argument is the next older one.

Raises OSError, and ``CannotVerify``.
"""

Repoint = Callable[[Path, str], None]
"""Make the tracker or link of a directory name a checkpoint; it can be repeated. Raises OSError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFormat:
    """A checkpoint format: recognised by content, verified, and rolled back."""

    name: str
    """For ``--format``."""

    title: str
    """What writes it."""

    find: Find
    check: Check
    repoint: Repoint | None = None
    """None if the framework has neither tracker nor link."""

    is_strict: bool = False
    """Whether the framework fails over foreign entries in the directory: nothing is put there."""

    script_chooses: bool = False
    """Whether the user's script chooses what it loads, and no framework does."""

    recognised_by: str
    complete_when: str
    loads: str
    """Which checkpoint the framework loads."""

    not_detected: str
    """Damage that leaves no trace in the files."""


def candidate(
    entry: Entry, step: int | None, *, is_ended: bool, name: str = "", group: str = ""
) -> Checkpoint:
    """A checkpoint that was found and not verified."""
    return Checkpoint(
        name=name or entry.name,
        step=step,
        is_ended=is_ended,
        group=group,
        changed_at=_time(entry.changed_at),
    )


def incomplete(text: str) -> Problem:
    """A problem that says that the save did not end."""
    return Problem(text=text, state=CheckpointState.INCOMPLETE)


def damaged(text: str) -> Problem:
    """A problem that says that the checkpoint cannot be what was saved."""
    return Problem(text=text, state=CheckpointState.DAMAGED)


def within(name: str, problem: Problem) -> Problem:
    """The same problem, with the name of the file or directory before it."""
    return replace(problem, text=f"{name}{problem.text}")


def _time(seconds: float) -> datetime:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC)
