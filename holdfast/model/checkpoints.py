"""Checkpoints of training jobs: the state of each, and which one the framework will load."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from holdfast.model.jobs import FailureKind
from holdfast.model.set_aside import SetAside


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
    """State of the checkpoint with this defect: incomplete, damaged, or unknown if a file cannot be
    verified."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveReport:
    """A save that a training script reported as done. It proves nothing about the files."""

    name: str
    """Path of the checkpoint, or of a file in it, relative to the checkpoint directory."""

    step: int
    at: datetime
    """Time of the report, by the clock of the node of rank 0."""


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
    """Result of the verification; ``unverified`` before one."""

    depth: Depth | None = None
    """Depth of the verification behind ``state``; None before one."""

    problems: tuple[str, ...] = ()
    """Defects that the verification found, as texts; empty if it found none."""

    reported_at: datetime | None = None
    """Time at which the script last reported a save of it as done; None if it did not. The files
    may be incomplete nevertheless."""

    watched_at: datetime | None = None
    """Time at which ``holdfast checkpoint watch`` verified this save; None if it did not."""

    compared: int = 0
    """Blocks whose checksum was compared with the manifest of that verification."""

    nan: tuple[str, ...] = ()
    """Tensors in which that verification found NaN."""

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
    """What the file or link contains."""

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
    """Name of the format; empty if none was recognized."""

    checkpoints: tuple[Checkpoint, ...] = ()
    """Checkpoints in the framework's order of preference."""

    pointer: Pointer = field(default_factory=Pointer)
    script_chooses: bool = False
    """Whether the user's script selects the checkpoint, so that it is unknown which one it
    loads."""

    is_copyable: bool = True
    """Whether each checkpoint is one file or directory, which can be copied."""

    exists: bool = True
    """Whether the directory exists."""

    lost: SaveReport | None = None
    """The newest report of a save, if nothing exists under its name and it was not moved."""

    others: tuple[str, ...] = ()
    """If no format was recognized: entries that are neither hidden nor logs or settings."""

    def named(self, name: str) -> Checkpoint | None:
        """Return the checkpoint of that name."""
        return next((one for one in self.checkpoints if one.name == name), None)

    @property
    def loaded(self) -> Checkpoint | None:
        """Checkpoint that the framework loads in this state; None if it finds none."""
        if self.pointer.kind is PointerKind.NONE:
            return next(iter(self.checkpoints), None)
        return self.named(self.pointer.name) if self.pointer.kind is PointerKind.NAMED else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnd:
    """How an attempt ended, as far as its platform knows."""

    kind: FailureKind | None = None
    """None if the platform does not know."""

    reason: str = ""
    first_step: int | None = None
    """First step that the attempt reported; None where the job reports none."""

    last_step: int | None = None
    """Last step that the attempt reported; None where the job reports none."""

    has_saved: bool = False
    """Whether it began to save a newer checkpoint."""

    bad_step: int | None = None
    """First step with a loss that was not finite or spiked, for which it was stopped."""

    bad_at: datetime | None = None
    """Time at which that step was reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumedAttempt:
    """An attempt, and the checkpoint that it resumed from."""

    job: str
    """Identifier of the job; empty if unknown."""

    attempt: int
    at: datetime
    """Time at which the checkpoint was chosen."""

    checkpoint: str = ""
    """Name of the checkpoint; empty if the attempt started from the beginning."""

    saved_at: datetime | None = None
    """``Checkpoint.changed_at`` of it: a later save of the same name is another checkpoint."""

    newest_at: datetime | None = None
    """Newest ``changed_at`` of all checkpoints at that time; None if there were none."""

    end: AttemptEnd | None = None
    """None until the next attempt of the job starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """Checkpoint that a person selected for the next attempt."""

    name: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """A checkpoint that a person put back: earlier failures no longer count against it."""

    name: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointHistory:
    """What Holdfast remembers of a checkpoint directory."""

    attempts: tuple[ResumedAttempt, ...] = ()
    """Attempts that resumed, oldest first."""

    aside: tuple[SetAside, ...] = ()
    """Checkpoints that were moved, oldest first."""

    released: tuple[Released, ...] = ()
    pin: Pin | None = None
