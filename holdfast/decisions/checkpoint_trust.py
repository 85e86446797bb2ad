"""Which complete checkpoints are suspected, and how far a job may roll back. Pure.

A checkpoint can be complete and still be useless: its weights are NaN, or its optimizer state makes
every attempt diverge. A scan of its tensors shows the former, attempts that resumed from it both.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from holdfast.kit.ranges import require_not_negative
from holdfast.model.checkpoints import (
    AttemptEnd,
    Checkpoint,
    CheckpointHistory,
    CheckpointState,
    Depth,
    Released,
    ResumedAttempt,
)
from holdfast.model.jobs import FailureKind
from holdfast.model.names import Cause

HISTORY_LIMIT = 200
"""Attempts and moved checkpoints that a history keeps; a job has at most 100 attempts recorded."""


_UNKNOWN_TIME: Final = datetime(2000, 1, 1, tzinfo=UTC)
"""Before all checkpoints."""

_REPORT_DELAY: Final = timedelta(seconds=2)
"""Maximum time between a bad loss and its report: launchers read the reports once a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPolicy:
    """Settings of the choice of a checkpoint."""

    suspect_attempts: int = 2
    """Number of attempts that failed on healthy nodes soon after a checkpoint, after which the job
    resumes from the one before. One failure alone may be chance. 0 turns this off."""

    suspect_steps: int = 10
    """Number of steps after a checkpoint within which a failure counts for ``suspect_attempts``. A
    bad optimizer state or NaN weights show in the loss of the first steps. Of a job that reports no
    steps, a failure counts if no newer checkpoint was begun."""

    max_rollback: timedelta = timedelta(hours=24)
    """Maximum age difference between the newest checkpoint and the one to resume from; beyond it, a
    person decides. To repeat a day of training costs more than to wait for an answer. 0s means
    no limit."""

    max_rollback_steps: int = 0
    """The same in training steps. 0, the default, means no limit: the time of a step differs by
    job."""

    def __post_init__(self) -> None:
        require_not_negative(self, "suspect_attempts", "max_rollback", "max_rollback_steps")
        if self.suspect_steps < 1:
            raise ValueError(f"suspect_steps must be 1 or more, got {self.suspect_steps}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """History of a checkpoint directory, and the settings that it is judged by."""

    policy: CheckpointPolicy = field(default_factory=CheckpointPolicy)
    history: CheckpointHistory = field(default_factory=CheckpointHistory)
    restored: str = ""
    """Name of a checkpoint that was just restored from a verified copy; empty for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollback:
    """Distance from the newest checkpoint that was passed over to the one to resume from."""

    time: timedelta = timedelta(0)
    steps: int | None = None
    """None if a step is unknown."""


def depth_after(cause: str, depth: Depth) -> Depth:
    """Return how thoroughly to verify before an attempt if the one before failed for ``cause``.

    A checkpoint that could not be read was chosen by its lengths; others may be damaged alike, and
    each would cost a restart.
    """
    return Depth.HASHES if cause == Cause.CHECKPOINT_DAMAGED else depth


def failures_after(one: Checkpoint, trust: Trust) -> tuple[ResumedAttempt, ...]:
    """Return the attempts that make a checkpoint suspect: the latest ones, without interruption.

    An attempt counts if it failed on healthy nodes soon after it resumed from the checkpoint, or
    after it saved it. One that started before a person put the checkpoint back does not count. One
    that got further ends the series. One that ended for another reason, such
    as a fault of a node, is no evidence.
    """
    found: list[ResumedAttempt] = []
    released = [each.at for each in trust.history.released if each.name == one.name]
    for attempt in reversed(trust.history.attempts):
        end = attempt.end
        if any(attempt.at <= at for at in released):
            break
        if end is None or end.kind is not FailureKind.APPLICATION:
            continue
        if _resumed_from(attempt, one):
            if not _is_early(end, trust.policy):
                break
            found.append(attempt)
        elif _saved(attempt, end, one):
            if one.step is None or end.last_step is None:
                break
            if 0 <= end.last_step - one.step < trust.policy.suspect_steps:
                found.append(attempt)
            break
    return tuple(reversed(found))


def poisoned_by(one: Checkpoint, trust: Trust) -> ResumedAttempt | None:
    """Return the attempt that saved a checkpoint after its loss was not finite or spiked.

    None if there is none, or if a person has put the checkpoint back since.
    """
    released = [each.at for each in trust.history.released if each.name == one.name]
    at = max(
        (each.at for each in trust.history.attempts if each.at <= one.changed_at), default=None
    )
    attempt = next((each for each in trust.history.attempts if each.at == at), None)
    end = attempt.end if attempt is not None else None
    if attempt is None or end is None or any(attempt.at <= each for each in released):
        return None
    if end.bad_step is None or not _saved(attempt, end, one):
        return None
    if one.step is not None:
        return attempt if one.step >= end.bad_step else None
    since = end.bad_at - _REPORT_DELAY if end.bad_at is not None else None
    return attempt if since is not None and one.changed_at >= since else None


def has_nan(one: Checkpoint, trust: Trust) -> bool:
    """Return whether NaN was found in a checkpoint that no person has put back since its save."""
    is_accepted = any(
        each.name == one.name and each.at >= one.changed_at for each in trust.history.released
    )
    return bool(one.nan) and not is_accepted


def is_suspected(one: Checkpoint, trust: Trust) -> bool:
    """Return whether a checkpoint is poisoned, or enough attempts failed soon after it."""
    if has_nan(one, trust) or poisoned_by(one, trust) is not None:
        return True
    needed = trust.policy.suspect_attempts
    return needed > 0 and len(failures_after(one, trust)) >= needed


def rollback(one: Checkpoint, passed: Sequence[Checkpoint]) -> Rollback:
    """Return the work that a job repeats if it resumes from ``one``.

    Args:
        one: checkpoint to resume from.
        passed: newer checkpoints that cannot be used, newest first. If the first one was
            interrupted while it was saved, it was never usable, and does not count.

    """
    lost = passed[1:] if passed and passed[0].state is CheckpointState.INCOMPLETE else passed
    if not lost:
        return Rollback(steps=0)
    newest = lost[0]
    time = max(newest.changed_at - one.changed_at, timedelta(0))
    if newest.step is None or one.step is None:
        return Rollback(time=time)
    return Rollback(time=time, steps=max(newest.step - one.step, 0))


def is_too_far(cost: Rollback, policy: CheckpointPolicy) -> bool:
    """Return whether a person has to decide on a rollback."""
    too_long = bool(policy.max_rollback) and cost.time > policy.max_rollback
    limit = policy.max_rollback_steps
    return too_long or (limit > 0 and cost.steps is not None and cost.steps > limit)


def with_end(
    history: tuple[ResumedAttempt, ...], end: AttemptEnd, job: str, attempt: int
) -> tuple[ResumedAttempt, ...]:
    """Return the attempts after the previous one of the job has ended; ``attempt`` starts now."""
    if not history or history[-1].end is not None:
        return history
    last = history[-1]
    if last.job != job or last.attempt >= attempt:
        return history
    return (*history[:-1], replace(last, end=end))


def with_bad_loss(
    history: tuple[ResumedAttempt, ...], end: AttemptEnd, job: str
) -> tuple[ResumedAttempt, ...]:
    """Return the attempts after ranks were stopped for a bad loss, to start again in place.

    They belong to the last attempt if that has not ended. Otherwise it is not known when they
    began, and checkpoints from the bad step on count as theirs whenever they were saved. A repeated
    call for the same loss changes nothing.

    Args:
        history: attempts up to now.
        end: how the ranks ended.
        job: identifier of the job; empty if unknown.

    """
    if any(
        one.end is not None and (one.end.bad_step, one.end.bad_at) == (end.bad_step, end.bad_at)
        for one in history
    ):
        return history
    if history and history[-1].end is None:
        return (*history[:-1], replace(history[-1], end=end))
    unknown = ResumedAttempt(job=job, attempt=1, at=_UNKNOWN_TIME, end=end)
    return (*history, unknown)[-HISTORY_LIMIT:]


def with_attempt(
    history: tuple[ResumedAttempt, ...], new: ResumedAttempt
) -> tuple[ResumedAttempt, ...]:
    """Return the attempts with one more; a repeated launch replaces its first record."""
    last = history[-1] if history else None
    is_repeat = last is not None and (last.job, last.attempt) == (new.job, new.attempt)
    earlier = history[:-1] if is_repeat and last is not None and last.end is None else history
    return (*earlier, new)[-HISTORY_LIMIT:]


def released(history: CheckpointHistory, name: str, moved: str, now: datetime) -> CheckpointHistory:
    """Return the history after a person put a checkpoint back.

    Args:
        history: history before.
        name: name of the checkpoint.
        moved: where it was until now.
        now: time.

    """
    mark = Released(name=name, at=now)
    return replace(
        history,
        aside=tuple(one for one in history.aside if one.path != moved),
        released=(*(one for one in history.released if one.name != name), mark)[-HISTORY_LIMIT:],
    )


def has_saved(checkpoints: Sequence[Checkpoint], newest_at: datetime | None) -> bool:
    """Return whether a checkpoint was saved or begun after the newest one known."""
    return any(newest_at is None or one.changed_at > newest_at for one in checkpoints)


def has_resumed(history: CheckpointHistory) -> bool:
    """Return whether a job has resumed from any checkpoint of the directory before."""
    return any(one.checkpoint for one in history.attempts) or any(
        one.resumed for one in history.aside
    )


def _resumed_from(attempt: ResumedAttempt, one: Checkpoint) -> bool:
    return attempt.checkpoint == one.name and attempt.saved_at == one.changed_at


def _saved(attempt: ResumedAttempt, end: AttemptEnd, one: Checkpoint) -> bool:
    """Return whether a checkpoint was saved in an attempt, as far as the times of files show."""
    is_newer = attempt.newest_at is None or one.changed_at > attempt.newest_at
    return end.has_saved and is_newer and one.changed_at >= attempt.at


def _is_early(end: AttemptEnd, policy: CheckpointPolicy) -> bool:
    if end.has_saved:
        return False
    if end.first_step is None or end.last_step is None:
        return True
    return end.last_step - end.first_step < policy.suspect_steps
