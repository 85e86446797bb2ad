"""Checkpoints that were moved out of the directory of a job, with the evidence."""

from dataclasses import dataclass
from datetime import datetime

SUSPECTED = "suspected"
"""``SetAside.state`` of a complete checkpoint with NaN, or after which attempts failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """A checkpoint that was moved out of its directory. Files of Holdfast contain it."""

    name: str
    path: str
    """Its location now."""

    why: str
    at: datetime
    folder: str = ""
    """Directory that it was moved out of; empty if unknown."""

    state: str = ""
    """``incomplete``, ``damaged`` or ``suspected``; empty if a person selected an older one."""

    depth: str = ""
    """Depth of the verification: a ``Depth``; empty if it was not verified."""

    problems: tuple[str, ...] = ()
    """Each check that failed, with the file."""

    step: int | None = None
    size: int | None = None
    """Bytes."""

    saved_at: datetime | None = None
    """Newest modification time of its files."""

    job: str = ""
    """Identifier of the job, which no other job has; empty if unknown."""

    attempt: int | None = None
    """Attempt before which it was moved; None if unknown."""

    resumed: str = ""
    """Checkpoint that the attempt resumes from instead; empty if from the beginning."""

    attempts: tuple[int, ...] = ()
    """Attempts of the job that had resumed from a checkpoint of that name."""
