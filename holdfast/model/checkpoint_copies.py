"""Copies of checkpoints in a second location."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedFile:
    """One file of a copy."""

    path: str
    """Relative to the checkpoint, with ``/``; empty if the checkpoint is one file."""

    size: int
    """Bytes."""

    sha256: str
    """Hexadecimal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCopy:
    """Manifest of a complete copy. It is written last: without it, a copy does not exist."""

    name: str
    """Name of the checkpoint in its directory."""

    step: int | None
    format: str
    saved_at: datetime
    """Newest modification time of its files: a later save of the same name is another copy."""

    copied_at: datetime
    files: tuple[CopiedFile, ...]
    changed_at: datetime | None = None
    """``Checkpoint.changed_at`` of the checkpoint, by which the history of its directory refers to
    it; it includes the times of directories. None in a manifest of an earlier release."""

    nan: tuple[str, ...] = ()
    """Tensors in which ``holdfast checkpoint watch`` found NaN, before or after the copy."""

    @property
    def size(self) -> int:
        """Return its size in bytes."""
        return sum(file.size for file in self.files)
