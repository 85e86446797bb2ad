"""Which checkpoint a job resumes from, and which ones are moved out of its way. Pure.

Nothing is ever deleted, and a complete checkpoint is never moved. What cannot be judged, and what
somebody may still be writing, is left alone.
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


class Outcome(StrEnum):
    """What becomes of the next attempt."""

    VERIFY = "verify"
    """Not decided: ``verify`` has to be verified first."""

    MISSING = "does-not-exist"
    """The directory does not exist: the job has not saved yet, or its path is wrong."""

    EMPTY = "empty"
    """There is no checkpoint yet."""

    RESUME = "resume"
    """The framework loads ``resume``, a complete checkpoint, once the changes are made."""

    START_OVER = "start-over"
    """Only a first save is there, and the framework had not committed to it before it was cut off:
    the job starts from the beginning."""

    NONE_COMPLETE = "none-complete"
    """There are checkpoints and none is complete: a person has to decide."""

    UNDECIDED = "undecided"
    """What the framework would load cannot be judged, or the format is not known."""

    BUSY = "busy"
    """Something that is not complete may still be being written: nothing is touched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The decision for one directory of checkpoints."""

    outcome: Outcome
    resume: Checkpoint | None = None
    verify: Checkpoint | None = None
    """With ``Outcome.VERIFY``: the one to verify."""

    depth: Depth = Depth.SIZES
    """With ``Outcome.VERIFY``: how thoroughly."""

    repoint: bool = False
    """Whether the tracker or link has to be set to ``resume``."""

    aside: tuple[Checkpoint, ...] = ()
    """To be moved out of the directory."""


def choose(survey: Survey, depth: Depth, quiet_since: datetime | None) -> Choice:
    """Choose the newest complete checkpoint that the framework has committed to.

    Args:
        survey: the directory as it is, with what verification has found so far.
        depth: how thoroughly the checkpoint must be verified before it is resumed from.
        quiet_since: what was changed after that may still be being written; None if it is certain
            that no process of the job is left.

    """
    if survey.pointer.kind is PointerKind.FIXED:
        return Choice(outcome=Outcome.RESUME)
    if not survey.format:
        empty = Outcome.EMPTY if survey.exists else Outcome.MISSING
        return Choice(outcome=Outcome.UNDECIDED if survey.others else empty)
    beyond, eligible = _split(survey)
    if not beyond and not eligible and survey.pointer.kind is not PointerKind.NAMED:
        return Choice(outcome=Outcome.EMPTY)
    for one in eligible:
        if one.state is CheckpointState.UNKNOWN:
            return Choice(outcome=Outcome.UNDECIDED, verify=one)
        if one.state is CheckpointState.UNVERIFIED or _is_shallow(one, depth):
            wanted = Depth.SIZES if one.depth is None else depth
            return Choice(outcome=Outcome.VERIFY, verify=one, depth=wanted)
        if one.state is CheckpointState.COMPLETE:
            return _resumed(survey, one, beyond, quiet_since)
    return _nothing_complete(survey, beyond, quiet_since)


def _split(survey: Survey) -> tuple[tuple[Checkpoint, ...], tuple[Checkpoint, ...]]:
    """Checkpoints that the framework had not committed to, and those that it had."""
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
    if pointer.kind is PointerKind.ABSENT:  # the save of the newest may have been cut off
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
    """Resume from one; what is broken and would be preferred is moved out of the way."""
    before = survey.checkpoints[: survey.checkpoints.index(one)]
    if (fresh := _unverified(before)) is not None:
        return fresh
    aside = tuple(each for each in before if each.is_broken)
    foreign = next((each for each in aside if each.group != one.group), None)
    if foreign is not None:  # moving it would let the framework start from the beginning
        return Choice(outcome=Outcome.UNDECIDED, resume=one, verify=foreign)
    pointer = survey.pointer
    repoint = pointer.kind is not PointerKind.NONE and pointer.name != one.name
    if (aside or repoint) and _is_busy((*aside, *beyond), quiet_since):
        if repoint or pointer.kind is PointerKind.NONE:
            return Choice(outcome=Outcome.BUSY, resume=one, aside=aside)
        aside = ()
    return Choice(outcome=Outcome.RESUME, resume=one, repoint=repoint, aside=aside)


def _nothing_complete(
    survey: Survey, beyond: tuple[Checkpoint, ...], quiet_since: datetime | None
) -> Choice:
    if (fresh := _unverified(beyond)) is not None:
        return fresh
    every = survey.checkpoints
    if _is_busy(every, quiet_since):
        return Choice(outcome=Outcome.BUSY)
    uncommitted = survey.pointer.kind in (PointerKind.NONE, PointerKind.ABSENT)
    if uncommitted and len(every) == 1 and every[0].name != ".":
        if every[0].state is CheckpointState.INCOMPLETE and not every[0].group:
            return Choice(outcome=Outcome.START_OVER, aside=every)
        if every[0].state is CheckpointState.COMPLETE:
            return Choice(outcome=Outcome.START_OVER)
    return Choice(outcome=Outcome.NONE_COMPLETE)


def _unverified(those: tuple[Checkpoint, ...]) -> Choice | None:
    one = next((one for one in those if one.state is CheckpointState.UNVERIFIED), None)
    return None if one is None else Choice(outcome=Outcome.VERIFY, verify=one)


def _is_busy(those: tuple[Checkpoint, ...], quiet_since: datetime | None) -> bool:
    """Whether one that is not complete was changed so lately that a process may still write it."""
    return quiet_since is not None and any(
        one.state is not CheckpointState.COMPLETE and one.changed_at > quiet_since for one in those
    )
