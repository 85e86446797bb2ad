"""Choice of the checkpoint that a job resumes from, and of those to move out of its way. Pure.

Nothing is ever deleted. A complete checkpoint is moved only if attempts failed soon after it, or if
a person selected an older one. A checkpoint that cannot be verified, or that a process may still be
writing, is left alone.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from holdfast.decisions.checkpoint_trust import (
    Rollback,
    Trust,
    has_resumed,
    is_suspected,
    is_too_far,
    rollback,
)
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
    starts from the beginning. It is not the first if an attempt has resumed from another one."""

    NONE_COMPLETE = "none-complete"
    """Checkpoints exist, but none is complete: a person has to decide."""

    UNDECIDED = "undecided"
    """The checkpoint that the framework would load cannot be verified, or the format is unknown."""

    ASK = "ask"
    """``resume`` is further behind the newest checkpoint than the policy allows: a person has to
    decide. Nothing is changed."""

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

    suspected: tuple[Checkpoint, ...] = ()
    """Complete checkpoints after which attempts failed. They are among ``aside``, unless no other
    checkpoint can be resumed from."""

    cost: Rollback = field(default_factory=Rollback)
    """What the job loses because newer checkpoints cannot be used."""

    is_pinned: bool = False
    """Whether a person selected ``resume``."""


def choose(
    survey: Survey, depth: Depth, quiet_since: datetime | None, trust: Trust | None = None
) -> Choice:
    """Choose the newest complete checkpoint that the framework has committed to.

    A checkpoint that a person selected comes first. One after which attempts failed is passed over
    if an older one can be resumed from.

    Args:
        survey: state of the directory, with the verification results so far.
        depth: depth to which a checkpoint must be verified before a job resumes from it.
        quiet_since: files changed after this time may still be being written; None if certainly no
            process of the job is left.
        trust: history of the directory and its policy; without one, no checkpoint is suspected.

    """
    trust = trust or Trust()
    given = (survey, depth, quiet_since, trust)
    if (selected := _pinned(*given) or _restored(*given)) is not None:
        return selected
    if survey.pointer.kind is PointerKind.FIXED:
        return Choice(outcome=ResumeOutcome.RESUME)
    if not survey.format:
        empty = ResumeOutcome.EMPTY if survey.exists else ResumeOutcome.MISSING
        return Choice(outcome=ResumeOutcome.UNDECIDED if survey.others else empty)
    beyond, eligible = _split(survey)
    if not beyond and not eligible and survey.pointer.kind is not PointerKind.NAMED:
        return Choice(outcome=ResumeOutcome.EMPTY)
    suspected: list[Checkpoint] = []
    for one in eligible:
        if one.state is CheckpointState.UNKNOWN:
            if suspected:
                break
            return Choice(outcome=ResumeOutcome.UNDECIDED, verify=one)
        if (more := _to_verify(one, depth)) is not None:
            return more
        if one.state is CheckpointState.COMPLETE and not is_suspected(one, trust):
            found = _Resumable(one, tuple(beyond), tuple(suspected))
            return _resumed(survey, found, quiet_since, trust)
        if one.state is CheckpointState.COMPLETE:
            suspected.append(one)
    if suspected:  # there is nothing better
        found = _Resumable(suspected[0], tuple(beyond), ())
        return replace(_resumed(survey, found, quiet_since, trust), suspected=(suspected[0],))
    return _nothing_complete(survey, beyond, quiet_since, trust)


@dataclass(frozen=True, slots=True)
class _Resumable:
    """A complete checkpoint, and what else is known when it is chosen."""

    one: Checkpoint
    beyond: tuple[Checkpoint, ...] = ()
    """Checkpoints that the framework had not committed to."""

    unwanted: tuple[Checkpoint, ...] = ()
    """Complete checkpoints that must not be loaded."""

    is_pinned: bool = False


def _pinned(
    survey: Survey, depth: Depth, quiet_since: datetime | None, trust: Trust
) -> Choice | None:
    """Return the choice of a checkpoint that a person selected; None if it cannot be used."""
    one = None if trust.history.pin is None else survey.named(trust.history.pin.name)
    if one is None:
        return None
    if (more := _to_verify(one, depth)) is not None:
        return more
    if one.state is not CheckpointState.COMPLETE:
        return None
    newer = survey.checkpoints[: survey.checkpoints.index(one)]
    if (fresh := _unverified(newer)) is not None:
        return fresh
    unwanted = tuple(
        each for each in newer if each.state in (CheckpointState.COMPLETE, CheckpointState.UNKNOWN)
    )
    found = _Resumable(one, newer, unwanted, is_pinned=True)
    return _resumed(survey, found, quiet_since, trust)


def _restored(
    survey: Survey, depth: Depth, quiet_since: datetime | None, trust: Trust
) -> Choice | None:
    """Return the choice of a checkpoint that was restored, wherever the pointer points.

    None if it cannot be used, or if a newer one that the framework had committed to is not
    suspected and may be loaded.
    """
    one = survey.named(trust.restored)
    if one is None:
        return None
    newer = survey.checkpoints[: survey.checkpoints.index(one)]
    for each in (*newer, one):
        if (more := _to_verify(each, depth)) is not None:
            return more
    suspected = tuple(
        each
        for each in newer
        if each.state is CheckpointState.COMPLETE and is_suspected(each, trust)
    )
    _, committed = _split(survey)
    may_be_loaded = any(
        each in committed and not each.is_broken and each not in suspected for each in newer
    )
    if one.state is not CheckpointState.COMPLETE or may_be_loaded:
        return None
    return _resumed(survey, _Resumable(one, newer, suspected), quiet_since, trust)


def _to_verify(one: Checkpoint, depth: Depth) -> Choice | None:
    """Return the choice to verify a checkpoint, more deeply if needed; None if that is done."""
    if one.state is not CheckpointState.UNVERIFIED and not _is_shallow(one, depth):
        return None
    needed = Depth.SIZES if one.depth is None else depth
    return Choice(outcome=ResumeOutcome.VERIFY, verify=one, depth=needed)


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
    survey: Survey, found: _Resumable, quiet_since: datetime | None, trust: Trust
) -> Choice:
    """Return the choice to resume from ``found.one``; what must not be loaded is moved away."""
    one, unwanted = found.one, found.unwanted
    before = survey.checkpoints[: survey.checkpoints.index(one)]
    if (fresh := _unverified(before)) is not None:
        return fresh
    aside = tuple(each for each in before if each.is_broken or each in unwanted)
    foreign = next((each for each in aside if each.group != one.group), None)
    if foreign is not None:  # without it, the framework would start over
        return Choice(outcome=ResumeOutcome.UNDECIDED, resume=one, verify=foreign)
    pointer = survey.pointer
    repoint = pointer.kind is not PointerKind.NONE and pointer.name != one.name
    choice = Choice(
        outcome=ResumeOutcome.RESUME,
        resume=one,
        repoint=repoint,
        aside=aside,
        suspected=() if found.is_pinned else unwanted,
        cost=rollback(one, aside),
        is_pinned=found.is_pinned,
    )
    if (aside or repoint) and _is_busy((*aside, *found.beyond), quiet_since):
        if repoint or unwanted or pointer.kind is PointerKind.NONE:
            return replace(choice, outcome=ResumeOutcome.BUSY)
        choice = replace(choice, aside=())
    if not found.is_pinned and is_too_far(choice.cost, trust.policy):
        return replace(choice, outcome=ResumeOutcome.ASK)
    return choice


def _nothing_complete(
    survey: Survey,
    beyond: tuple[Checkpoint, ...],
    quiet_since: datetime | None,
    trust: Trust,
) -> Choice:
    if (fresh := _unverified(beyond)) is not None:
        return fresh
    every = survey.checkpoints
    if _is_busy(every, quiet_since):
        return Choice(outcome=ResumeOutcome.BUSY)
    uncommitted = survey.pointer.kind in (PointerKind.NONE, PointerKind.ABSENT)
    if has_resumed(trust.history):  # it is not the first save: the job would lose all progress
        return Choice(outcome=ResumeOutcome.NONE_COMPLETE)
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
