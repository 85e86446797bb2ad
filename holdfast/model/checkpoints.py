"""Checkpoints of training jobs: what is known of each, and which one the framework will load."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class Depth(StrEnum):
    """How thoroughly a checkpoint is verified."""

    SIZES = "sizes"
    """Markers, names, indexes and lengths. Tensors are not read."""

    HASHES = "hashes"
    """Also every checksum that the files hold: all bytes are read once."""


class CheckpointState(StrEnum):
    """What verification found."""

    UNVERIFIED = "unverified"
    """Nobody has looked yet."""

    COMPLETE = "complete"
    """All parts are there and as long as they have to be, and checksums agree if they were read."""

    INCOMPLETE = "incomplete"
    """Its save was cut off: a file is missing or too short, or the marker that is written last."""

    DAMAGED = "damaged"
    """Not a save that was cut off: a checksum does not match, a file is not of the format, or one
    that was written before the last marker is missing or has another length."""

    UNKNOWN = "unknown"
    """It cannot be judged: the index is too large, or of a form that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong with a checkpoint."""

    text: str
    """What is wrong with which file; the file's name is relative to the checkpoint."""

    state: CheckpointState = CheckpointState.DAMAGED


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One checkpoint in a directory of checkpoints."""

    name: str
    """File or directory, relative to the directory of checkpoints; ``.`` for that one itself."""

    step: int | None
    """Training step; a save counter where the format has no other; None if the name has none."""

    is_ended: bool
    """Whether a file that is written after all others shows that its save ended. Of a format that
    has neither such a file nor a pointer: true."""

    changed_at: datetime
    """Newest modification time of its files."""

    group: str = ""
    """Checkpoints of one group take each other's place. One of another group is not loaded instead:
    without ``latest.pt``, a script starts from the beginning."""

    size: int = 0
    """Bytes of its files."""

    state: CheckpointState = CheckpointState.UNVERIFIED
    depth: Depth | None = None
    """Depth of the verification behind ``state``; None before one."""

    problems: tuple[str, ...] = ()

    @property
    def is_broken(self) -> bool:
        """Whether verification has shown that it cannot be loaded."""
        return self.state in (CheckpointState.INCOMPLETE, CheckpointState.DAMAGED)


class PointerKind(StrEnum):
    """What the file or link says by which a framework chooses."""

    NONE = "none"
    """The format has no such file: the first checkpoint in order of preference is loaded."""

    ABSENT = "absent"
    """The format has one, and it is missing: the framework starts from the beginning."""

    UNREADABLE = "unreadable"
    """It is empty, garbled, or names nothing that could be a checkpoint."""

    NAMED = "named"
    """It names a checkpoint, which may be missing."""

    FIXED = "fixed"
    """It names something that no newer checkpoint replaces, such as Megatron's ``release``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pointer:
    """The file or link by which a framework chooses the checkpoint that it loads."""

    kind: PointerKind = PointerKind.NONE
    file: str = ""
    """Its name in the directory of checkpoints."""

    text: str = ""
    """What it says, cut to a line."""

    name: str = ""
    """Name of the checkpoint that it names."""

    step: int | None = None
    """Step of that checkpoint; None if the name has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """A directory of checkpoints."""

    folder: str
    """Absolute path, for messages."""

    format: str
    """Name of the format; empty if none was recognised."""

    checkpoints: tuple[Checkpoint, ...] = ()
    """In the order in which the framework prefers them, the first one first."""

    pointer: Pointer = field(default_factory=Pointer)
    script_chooses: bool = False
    """Whether the user's script chooses, so that nobody knows what it loads."""

    exists: bool = True
    """Whether the directory exists."""

    others: tuple[str, ...] = ()
    """Without a format: entries that are neither hidden nor logs or settings."""

    def named(self, name: str) -> Checkpoint | None:
        """The checkpoint of that name."""
        return next((one for one in self.checkpoints if one.name == name), None)

    @property
    def loaded(self) -> Checkpoint | None:
        """The checkpoint that the framework loads as things are; None if it finds none."""
        if self.pointer.kind is PointerKind.NONE:
            return next(iter(self.checkpoints), None)
        return self.named(self.pointer.name) if self.pointer.kind is PointerKind.NAMED else None
