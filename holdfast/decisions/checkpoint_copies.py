"""Which checkpoints are copied to a second location, and which copies are deleted: pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.decisions.checkpoint_choice import ResumeOutcome
from holdfast.model.checkpoint_copies import CheckpointCopy
from holdfast.model.checkpoints import Checkpoint, CheckpointHistory


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """Copies that are kept."""

    keep: int = 3
    """Number of newest copies. Three survive two that turn out to be poisoned."""

    max_age: timedelta | None = None
    """Copies of older checkpoints are deleted, but never the newest copy; None for no limit."""

    def __post_init__(self) -> None:
        """Check the limits."""
        if self.keep < 1:
            raise ValueError(f"keep must be 1 or more, got {self.keep}")
        if self.max_age is not None and self.max_age <= timedelta(0):
            raise ValueError(f"max_age must be longer than 0s, got {self.max_age}")


def needs_restore(outcome: ResumeOutcome, history: CheckpointHistory) -> bool:
    """Return whether a copy has to be restored before the next attempt.

    That is so if no checkpoint of the directory is complete, and if a directory that had
    checkpoints before has none to resume from. A job that has not saved yet starts from the
    beginning: copies in the location may be those of an earlier job.
    """
    if outcome is ResumeOutcome.NONE_COMPLETE:
        return True
    had_some = any(one.newest_at is not None for one in history.attempts) or bool(history.aside)
    lost = (ResumeOutcome.EMPTY, ResumeOutcome.MISSING, ResumeOutcome.START_OVER)
    return had_some and outcome in lost


def missing_copies(
    checkpoints: Sequence[Checkpoint],
    copies: Sequence[CheckpointCopy],
    policy: RetentionPolicy,
    now: datetime,
) -> tuple[Checkpoint, ...]:
    """Return the checkpoints without a copy that would be kept, newest first."""
    have = {_identity(copy) for copy in copies}
    new = [one for one in checkpoints if (one.name, one.changed_at) not in have]
    times = sorted((*(copy.saved_at for copy in copies), *(one.changed_at for one in new)))[::-1]
    retained = _retained(times, policy, now)
    newest_first = sorted(new, key=lambda one: one.changed_at, reverse=True)
    return tuple(one for one in newest_first if one.changed_at in retained)


def expired_copies(
    copies: Sequence[CheckpointCopy], policy: RetentionPolicy, now: datetime
) -> tuple[CheckpointCopy, ...]:
    """Return the copies to delete, oldest first; never the newest one."""
    ordered = sorted(copies, key=_order)
    retained = _retained([copy.saved_at for copy in reversed(ordered)], policy, now)
    beyond = ordered[: -policy.keep]
    return tuple(copy for copy in ordered[:-1] if copy in beyond or copy.saved_at not in retained)


def _retained(
    newest_first: Sequence[datetime], policy: RetentionPolicy, now: datetime
) -> set[datetime]:
    retained = newest_first[: policy.keep]
    if policy.max_age is None:
        return set(retained)
    return {at for at in retained if now - at <= policy.max_age or at == newest_first[0]}


def _identity(copy: CheckpointCopy) -> tuple[str, datetime]:
    return copy.name, copy.saved_at


def _order(copy: CheckpointCopy) -> tuple[datetime, str]:
    return copy.saved_at, copy.name
