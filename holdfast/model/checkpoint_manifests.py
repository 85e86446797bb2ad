"""Manifests of checkpoints: what their files contained soon after the save."""

from dataclasses import dataclass
from datetime import datetime

from holdfast.model.checkpoints import CheckpointState

BLOCK = 16 << 20
"""Bytes per block with a CRC32. A checkpoint of 1 TB has 60,000, which take 700 KB as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFile:
    """One file of a checkpoint."""

    path: str
    """Relative to the checkpoint, with ``/``; empty if the checkpoint is one file."""

    size: int
    """Bytes."""

    changed_ns: int
    """Modification time in nanoseconds since the epoch."""

    sha256: str
    """Hexadecimal."""

    blocks: tuple[int, ...]
    """CRC32 of each block of ``BLOCK`` bytes; the last one may be shorter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightScan:
    """Search for values that are not finite in the tensors of a checkpoint."""

    scanned: int = 0
    """Bytes of floating-point tensors that were read."""

    nan: tuple[str, ...] = ()
    """Tensors with NaN, as ``file: tensor``."""

    infinite: tuple[str, ...] = ()
    """Tensors with infinity and without NaN. A mask may contain it on purpose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointManifest:
    """Result of the verification of a checkpoint after its save."""

    name: str
    """Name of the checkpoint in its directory."""

    step: int | None
    format: str
    state: CheckpointState
    """``complete``, ``damaged`` or ``unknown``, by all checksums of the format."""

    problems: tuple[str, ...] = ()
    saved_at: datetime
    """Newest modification time of its files."""

    verified_at: datetime
    seconds: float
    """Duration of the verification."""

    files: tuple[ManifestFile, ...]
    weights: WeightScan

    @property
    def size(self) -> int:
        """Return the size of the checkpoint in bytes."""
        return sum(file.size for file in self.files)

    @property
    def is_good(self) -> bool:
        """Whether a job can resume from it: complete, without NaN."""
        return self.state is CheckpointState.COMPLETE and not self.weights.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveSummary:
    """Saves in a checkpoint directory, as their background verification found them."""

    at: datetime
    """Time of the last verification."""

    name: str = ""
    """Newest checkpoint that a job can resume from; empty if none was found."""

    step: int | None = None
    saved_at: datetime | None = None
    """Time of its save."""

    interval_s: float | None = None
    """Median time between the newest saves in seconds; None before the second save."""

    seconds: float = 0
    """Duration of the last verification."""

    good: int = 0
    """Number of verified checkpoints that a job can resume from."""

    bad: int = 0
    """Number of verified checkpoints that are damaged, contain NaN or cannot be verified."""

    incomplete: int = 0
    """Number of checkpoints that were reported as saved and are incomplete now."""
