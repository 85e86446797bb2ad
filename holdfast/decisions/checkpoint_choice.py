"""Choice of the checkpoint that a job resumes from, and of those to move out of its way. Pure.

Nothing is ever deleted, and a complete checkpoint is never moved. A checkpoint that cannot be
verified, or that a process may still be writing, is left alone.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from holdfast.model.checkpoints import (
    Checkpoint,
    CheckpointState,
    Depth,
    PointerKind,
    Survey,
)


class ResumeOutcome(StrEnum):
    """Result of the choice for the next attempt."""

    VERIFY = "verify"
    """Not decided yet: the checkpoint ``verify`` has to be verified first."""

    MISSING = "does-not-exist"
    """The directory does not exist: the job has not saved yet, or its path is wrong."""

    EMPTY = "empty"
    """The directory has no checkpoint yet."""

    RESUME = "resume"
    """The framework will load ``resume``, a complete checkpoint, once the changes are made."""

    START_OVER = "start-over"
    """Only a first save exists, and it was cut off before the framework committed to it: the job
    starts from the beginning."""

    NONE_COMPLETE = "none-complete"
    """Checkpoints exist, but none is complete: a person has to decide."""

    UNDECIDED = "undecided"
    """The checkpoint that the framework would load cannot be verified, or the format is unknown."""

    BUSY = "busy"
    """An incomplete checkpoint may still be being written: nothing is changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Decision for one checkpoint directory."""

    outcome: ResumeOutcome
    resume: Checkpoint | None = None
    verify: Checkpoint | None = None
    """Checkpoint to verify, with ``ResumeOutcome.VERIFY``."""

    depth: Depth = Depth.SIZES
    """Depth of that verification."""

    repoint: bool = False
    """Whether the tracker file or link has to be set to ``resume``."""

    aside: tuple[Checkpoint, ...] = ()
    """Checkpoints to move out of the directory."""


def choose(survey: Survey, depth: Depth, quiet_since: datetime | None) -> Choice:
    """Choose the newest complete checkpoint that the framework has committed to.

    Args:
        survey: state of the directory, with the verification results so far.
        depth: depth to which a checkpoint must be verified before a job resumes from it.
        quiet_since: files changed after this time may still be being written; None if certainly no
            process of the job is left.

    """
    if survey.pointer.kind is PointerKind.FIXED:
        return Choice(outcome=ResumeOutcome.RESUME)
    if not survey.format:
        empty = ResumeOutcome.EMPTY if survey.exists else ResumeOutcome.MISSING
        return Choice(outcome=ResumeOutcome.UNDECIDED if survey.others else empty)
    beyond, eligible = _split(survey)
    if not beyond and not eligible and survey.pointer.kind is not PointerKind.NAMED:
        return Choice(outcome=ResumeOutcome.EMPTY)
    for one in eligible:
        if one.state is CheckpointState.UNKNOWN:
            return Choice(outcome=ResumeOutcome.UNDECIDED, verify=one)
        if one.state is CheckpointState.UNVERIFIED or _is_shallow(one, depth):
            needed = Depth.SIZES if one.depth is None else depth
            return Choice(outcome=ResumeOutcome.VERIFY, verify=one, depth=needed)
        if one.state is CheckpointState.COMPLETE:
            return _resumed(survey, one, beyond, quiet_since)
    return _nothing_complete(survey, beyond, quiet_since)


def _split(survey: Survey) -> tuple[tuple[Checkpoint, ...], tuple[Checkpoint, ...]]:
    """Return the checkpoints that the framework had not committed to, and those that it had."""
    every, pointer = survey.checkpoints, survey.pointer
    if pointer.kind is PointerKind.NAMED:
        names = [one.name for one in every]
        if pointer.name in names:
            at = names.index(pointer.name)
            return every[:at], every[at:]
        step = pointer.step
        if step is None:
            return (), every
        older = tuple(one for one in every if one.step is None or one.step < step)
        return tuple(one for one in every if one not in older), older
    if pointer.kind is PointerKind.ABSENT:  # the newest save may have been cut off
        cut = 0 if every and every[0].is_ended else 1
        return every[:cut], every[cut:]
    return (), every


def _is_shallow(one: Checkpoint, depth: Depth) -> bool:
    return one.state is CheckpointState.COMPLETE and depth is Depth.HASHES is not one.depth


def _resumed(
    survey: Survey,
    one: Checkpoint,
    beyond: tuple[Checkpoint, ...],
    quiet_since: datetime | None,
) -> Choice:
    """Return the choice to resume from ``one``; broken checkpoints before it are moved away."""
    before = survey.checkpoints[: survey.checkpoints.index(one)]
    if (fresh := _unverified(before)) is not None:
        return fresh
    aside = tuple(each for each in before if each.is_broken)
    foreign = next((each for each in aside if each.group != one.group), None)
    if foreign is not None:  # without it, the framework would start over
        return Choice(outcome=ResumeOutcome.UNDECIDED, resume=one, verify=foreign)
    pointer = survey.pointer
    repoint = pointer.kind is not PointerKind.NONE and pointer.name != one.name
    if (aside or repoint) and _is_busy((*aside, *beyond), quiet_since):
        if repoint or pointer.kind is PointerKind.NONE:
            return Choice(outcome=ResumeOutcome.BUSY, resume=one, aside=aside)
        aside = ()
    return Choice(outcome=ResumeOutcome.RESUME, resume=one, repoint=repoint, aside=aside)


def _nothing_complete(
    survey: Survey, beyond: tuple[Checkpoint, ...], quiet_since: datetime | None
) -> Choice:
    if (fresh := _unverified(beyond)) is not None:
        return fresh
    every = survey.checkpoints
    if _is_busy(every, quiet_since):
        return Choice(outcome=ResumeOutcome.BUSY)
    uncommitted = survey.pointer.kind in (PointerKind.NONE, PointerKind.ABSENT)
    if uncommitted and len(every) == 1 and every[0].name != ".":
        if every[0].state is CheckpointState.INCOMPLETE and not every[0].group:
            return Choice(outcome=ResumeOutcome.START_OVER, aside=every)
        if every[0].state is CheckpointState.COMPLETE:
            return Choice(outcome=ResumeOutcome.START_OVER)
    return Choice(outcome=ResumeOutcome.NONE_COMPLETE)


def _unverified(those: tuple[Checkpoint, ...]) -> Choice | None:
    one = next((one for one in those if one.state is CheckpointState.UNVERIFIED), None)
    return None if one is None else Choice(outcome=ResumeOutcome.VERIFY, verify=one)


def _is_busy(those: tuple[Checkpoint, ...], quiet_since: datetime | None) -> bool:
    """Return whether a process may still be writing to an incomplete checkpoint."""
    return quiet_since is not None and any(
        one.state is not CheckpointState.COMPLETE and one.changed_at > quiet_since for one in those
    )
