"""View of the checkpoints of a job, from its directory and what Holdfast has recorded beside it."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.adapters.checkpoints.history import read_history
from holdfast.decisions.checkpoint_trust import Trust, is_suspected
from holdfast.engine.checkpoint_guard import verified
from holdfast.engine.checkpoint_wording import why_suspected
from holdfast.model.checkpoints import (
    Checkpoint,
    CheckpointState,
    Depth,
    ResumedAttempt,
    Survey,
)
from holdfast.model.set_aside import SUSPECTED

VERIFIED: Final = 20
"""Maximum number of checkpoints whose sizes are compared, newest first: 1,000 files take 20 ms."""

QUARANTINED: Final = "quarantined"
"""State of a checkpoint that was moved out of the directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRow:
    """A checkpoint in the directory of a job, or one that was moved out of it."""

    name: str
    step: int | None
    state: str
    """A ``CheckpointState``, ``suspected`` or ``quarantined``."""

    depth: str
    """``Depth`` of the verification; that of the background verification if it was deeper."""

    size: int | None
    """Bytes; None if not known."""

    saved_at: datetime | None
    moved_at: datetime | None = None
    """Time at which it was moved out of the directory; None if it was not."""

    is_loaded: bool = False
    """Whether the framework would load it now; false if the user's script chooses."""

    problems: tuple[str, ...] = ()
    """Checks that failed, or why it is suspected."""

    attempts: tuple[ResumedAttempt, ...] = ()
    """Attempts that resumed from a checkpoint of that name, oldest first."""


def checkpoint_rows(folder: Path) -> list[CheckpointRow]:
    """Return the checkpoints of a directory, newest first, then those that were moved out of it.

    Only names and sizes are read: checksums are those of the background verification.

    Raises:
        BackendError: the directory cannot be read.

    """
    store = CheckpointDirectory(folder)
    survey = store.survey()
    for one in survey.checkpoints[:VERIFIED]:
        survey = verified(store, survey, one, Depth.SIZES)
    return [*_present(survey, folder), *_moved(folder)]


def _present(survey: Survey, folder: Path) -> Iterator[CheckpointRow]:
    trust = Trust(history=read_history(folder))
    loaded = None if survey.script_chooses else survey.loaded
    for one in survey.checkpoints:
        is_doubtful = one.state is CheckpointState.COMPLETE and is_suspected(one, trust)
        yield CheckpointRow(
            name=one.name,
            step=one.step,
            state=SUSPECTED if is_doubtful else one.state.value,
            depth=_depth(one),
            size=one.size if one.depth is not None else None,
            saved_at=one.changed_at,
            is_loaded=one is loaded,
            problems=(why_suspected(one, trust),) if is_doubtful else one.problems,
            attempts=_resumed(trust, one.name),
        )


def _moved(folder: Path) -> Iterator[CheckpointRow]:
    trust = Trust(history=read_history(folder))
    for one in reversed(trust.history.aside):
        yield CheckpointRow(
            name=one.name,
            step=one.step,
            state=QUARANTINED,
            depth=one.depth,
            size=one.size,
            saved_at=one.saved_at,
            moved_at=one.at,
            problems=one.problems or (one.why,),
            attempts=_resumed(trust, one.name),
        )


def _depth(one: Checkpoint) -> str:
    if one.watched_at is not None and one.state is CheckpointState.COMPLETE:
        return Depth.HASHES.value
    return one.depth.value if one.depth is not None else ""


def _resumed(trust: Trust, name: str) -> tuple[ResumedAttempt, ...]:
    return tuple(one for one in trust.history.attempts if one.checkpoint == name)
