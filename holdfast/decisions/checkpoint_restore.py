"""Whether an attempt needs a copy of a checkpoint, and which one is restored for it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.decisions.checkpoint_choice import Choice, ResumeOutcome
from holdfast.decisions.checkpoint_copies import as_checkpoint, is_trusted, preferred
from holdfast.decisions.checkpoint_trust import Rollback, Trust, is_too_far, rollback
from holdfast.model.checkpoint_copies import CheckpointCopy
from holdfast.model.checkpoints import Checkpoint, CheckpointHistory, Survey

_LOST = (ResumeOutcome.EMPTY, ResumeOutcome.MISSING, ResumeOutcome.START_OVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """Copies that may be restored before an attempt."""

    candidates: tuple[CheckpointCopy, ...] = ()
    """Copies in order of preference: the first one that is not damaged is restored."""

    too_old: tuple[CheckpointCopy, ...] = ()
    """Trusted copies beyond the limit of a rollback, newest first: a person decides."""

    suspected: tuple[CheckpointCopy, ...] = ()
    """Copies that are not trusted, newest first: only a person restores them."""

    aside: tuple[Checkpoint, ...] = ()
    """Broken checkpoints to move away once a copy has been verified."""


def needs_restore(outcome: ResumeOutcome, history: CheckpointHistory) -> bool:
    """Return whether a copy has to be restored before the next attempt.

    That is so if no checkpoint of the directory is complete, and if a directory that had
    checkpoints before an attempt has none to resume from.
    """
    if outcome is ResumeOutcome.NONE_COMPLETE:
        return True
    had_some = any(one.newest_at is not None for one in history.attempts) or bool(history.aside)
    return had_some and outcome in _LOST


def own_copies_since(
    outcome: ResumeOutcome, history: CheckpointHistory, job: str, started_at: datetime | None
) -> datetime | None:
    """Return since when copies are those of the job, if one may have to be restored.

    A job without a checkpoint may have lost what it saved in an earlier attempt. It has if there is
    a copy that was made since its first attempt; an older one may be that of an earlier job.

    Args:
        outcome: of the choice; None is returned unless nothing is left.
        history: of the directory; it may be lost, too.
        job: identifier of the job; empty if it is not known.
        started_at: start of its first attempt; None if it is not known, or no attempt has begun.

    """
    if outcome not in _LOST:
        return None
    begun = [one.at for one in history.attempts if job and one.job == job]
    return min([*begun, *([started_at] if started_at is not None else [])], default=None)


def prefers_copy(choice: Choice) -> bool:
    """Return whether a copy may be better than the checkpoint to resume from.

    That is so if it is too old, or suspected and the only complete one.
    """
    if choice.outcome is ResumeOutcome.ASK:
        return True
    return choice.outcome is ResumeOutcome.RESUME and choice.resume in choice.suspected


def awaits_copy(outcome: ResumeOutcome, *, has_copies: bool) -> bool:
    """Return whether an attempt must not start if the copy that it needs could not be restored.

    Without any copy, an attempt with broken checkpoints starts, as without a location; but one
    whose checkpoints disappeared would start from the beginning, perhaps because a file system is
    not mounted.
    """
    return has_copies or outcome is not ResumeOutcome.NONE_COMPLETE


def plan_restore(
    survey: Survey, choice: Choice, copies: Sequence[CheckpointCopy], trust: Trust
) -> RestorePlan:
    """Return what may be restored, for a choice that needs or prefers a copy.

    A copy is never restored over a checkpoint that is not broken, and instead of a complete
    checkpoint only if it is newer, or if that one is suspected.
    """
    broken = tuple(one for one in survey.checkpoints if one.is_broken)
    one, is_ask = choice.resume, choice.outcome is ResumeOutcome.ASK
    aside = broken if one is None else tuple(each for each in choice.aside if each in broken)
    occupied = {each.name for each in survey.checkpoints} - {each.name for each in aside}
    free = [
        copy
        for copy in preferred(copies, trust)
        if copy.name not in occupied
        and not (is_ask and one is not None and as_checkpoint(copy).changed_at <= one.changed_at)
    ]
    trusted = [copy for copy in free if is_trusted(copy, trust)]
    near = [copy for copy in trusted if not is_too_far(cost(copy, survey, trust), trust.policy)]
    return RestorePlan(
        candidates=tuple(near),
        too_old=tuple(copy for copy in trusted if copy not in near),
        suspected=tuple(copy for copy in free if copy not in trusted),
        aside=aside,
    )


def cost(copy: CheckpointCopy, survey: Survey, trust: Trust) -> Rollback:
    """Return the work that a job repeats if it resumes from a copy.

    Args:
        copy: copy to restore.
        survey: the directory. If none of its checkpoints is newer, the newest checkpoint that
            earlier attempts saw is what was lost.
        trust: history of the directory.

    """
    one = as_checkpoint(copy)
    if newer := [each for each in survey.checkpoints if each.changed_at > one.changed_at]:
        return rollback(one, newer)
    seen = [each.newest_at for each in trust.history.attempts if each.newest_at is not None]
    newest = max(seen, default=one.changed_at)
    return Rollback(time=max(newest - one.changed_at, timedelta(0)))
