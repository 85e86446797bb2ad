"""Checkpoints of training jobs: the state of each, and which one the framework will load."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class Depth(StrEnum):
    """Depth of the verification of a checkpoint."""

    SIZES = "sizes"
    """Markers, names, indexes and lengths. Tensors are not read."""

    HASHES = "hashes"
    """Also every checksum in the files: all bytes are read once."""


class CheckpointState(StrEnum):
    """Result of a verification."""

    UNVERIFIED = "unverified"
    """Not verified yet."""

    COMPLETE = "complete"
    """All parts exist with the required lengths, and checksums match if they were read."""

    INCOMPLETE = "incomplete"
    """The save was interrupted: a file is missing or too short, or the marker that is written
    last."""

    DAMAGED = "damaged"
    """Not an interrupted save: a checksum does not match, a file is not valid in the format, or a
    file written before the last marker is missing or has another length."""

    UNKNOWN = "unknown"
    """Cannot be verified: the index is too large or of an unknown form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One defect of a checkpoint."""

    text: str
    """Defect and file; the file name is relative to the checkpoint."""

    state: CheckpointState = CheckpointState.DAMAGED


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One checkpoint in a checkpoint directory."""

    name: str
    """File or directory, relative to the checkpoint directory; ``.`` for that directory itself."""

    step: int | None
    """Training step; a save counter if the format has no step; None if the name has neither."""

    is_ended: bool
    """Whether a file that is written after all others shows that its save ended. True for a format
    that has neither such a file nor a pointer."""

    changed_at: datetime
    """Newest modification time of its files."""

    group: str = ""
    """Checkpoints of one group replace each other. One of another group is not loaded instead:
    without ``latest.pt``, a script starts from the beginning."""

    size: int = 0
    """Size of its files in bytes."""

    state: CheckpointState = CheckpointState.UNVERIFIED
    depth: Depth | None = None
    """Depth of the verification behind ``state``; None before one."""

    problems: tuple[str, ...] = ()

    @property
    def is_broken(self) -> bool:
        """Whether verification has shown that it cannot be loaded."""
        return self.state in (CheckpointState.INCOMPLETE, CheckpointState.DAMAGED)


class PointerKind(StrEnum):
    """Content of the file or link by which a framework selects a checkpoint."""

    NONE = "none"
    """The format has no such file: the first checkpoint in order of preference is loaded."""

    ABSENT = "absent"
    """The format has such a file, and it is missing: the framework starts from the beginning."""

    UNREADABLE = "unreadable"
    """It is empty, garbled, or names nothing that could be a checkpoint."""

    NAMED = "named"
    """It names a checkpoint, which may be missing."""

    FIXED = "fixed"
    """It names something that no newer checkpoint replaces, such as Megatron's ``release``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """File or link by which a framework selects the checkpoint that it loads."""

    kind: PointerKind = PointerKind.NONE
    file: str = ""
    """Its name in the checkpoint directory."""

    text: str = ""
    """Its content, cut to a line."""

    name: str = ""
    """Name of the checkpoint that it names."""

    step: int | None = None
    """Step of that checkpoint; None if the name has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """State of a checkpoint directory."""

    folder: str
    """Absolute path, for messages."""

    format: str
    """Name of the format; empty if none was recognised."""

    checkpoints: tuple[Checkpoint, ...] = ()
    """Checkpoints in the framework's order of preference."""

    pointer: Pointer = field(default_factory=Pointer)
    script_chooses: bool = False
    """Whether the user's script selects the checkpoint, so that it is unknown which one it
    loads."""

    exists: bool = True
    """Whether the directory exists."""

    others: tuple[str, ...] = ()
    """If no format was recognised: entries that are neither hidden nor logs or settings."""

    def named(self, name: str) -> Checkpoint | None:
        """Return the checkpoint of that name."""
        return next((one for one in self.checkpoints if one.name == name), None)

    @property
    def loaded(self) -> Checkpoint | None:
        """Checkpoint that the framework loads in this state; None if it finds none."""
        if self.pointer.kind is PointerKind.NONE:
            return next(iter(self.checkpoints), None)
        return self.named(self.pointer.name) if self.pointer.kind is PointerKind.NAMED else None
