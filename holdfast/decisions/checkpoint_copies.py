"""Which checkpoints are copied to a second location, and which copies are deleted: pure.

A copy of a suspected checkpoint is worth less than any other copy: it is the first to be deleted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.decisions.checkpoint_trust import Trust, is_suspected
from holdfast.kit.ranges import require_longer_than_zero
from holdfast.model.checkpoint_copies import CheckpointCopy
from holdfast.model.checkpoints import Checkpoint, CheckpointState
from holdfast.model.set_aside import SUSPECTED


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
        require_longer_than_zero(self, "max_age")


def as_checkpoint(copy: CheckpointCopy) -> Checkpoint:
    """Return the checkpoint that a copy was made of."""
    return Checkpoint(
        name=copy.name,
        step=copy.step,
        is_ended=True,
        changed_at=copy.changed_at or copy.saved_at,
        size=copy.size,
        state=CheckpointState.COMPLETE,
        nan=copy.nan,
    )


def is_trusted(copy: CheckpointCopy, trust: Trust) -> bool:
    """Return whether nothing speaks against resuming from a copy."""
    one = as_checkpoint(copy)
    is_quarantined = any(
        each.state == SUSPECTED and (each.name, each.saved_at) == (one.name, one.changed_at)
        for each in trust.history.aside
    )
    return not is_quarantined and not is_suspected(one, trust)


def preferred(copies: Sequence[CheckpointCopy], trust: Trust) -> tuple[CheckpointCopy, ...]:
    """Return the trusted copies, newest first, and then the others, newest first."""
    newest_first = sorted(copies, key=_order, reverse=True)
    return tuple(sorted(newest_first, key=lambda copy: not is_trusted(copy, trust)))


def missing_copies(
    checkpoints: Sequence[Checkpoint],
    copies: Sequence[CheckpointCopy],
    policy: RetentionPolicy,
    now: datetime,
    trust: Trust | None = None,
) -> tuple[Checkpoint, ...]:
    """Return the checkpoints without a copy that would be kept, newest first.

    A suspected checkpoint is not copied.
    """
    trust = trust or Trust()
    have = {_identity(copy) for copy in copies}
    new = [
        one
        for one in checkpoints
        if (one.name, one.changed_at) not in have and not is_suspected(one, trust)
    ]
    trusted = [copy.saved_at for copy in copies if is_trusted(copy, trust)]
    times = sorted((*trusted, *(one.changed_at for one in new)), reverse=True)
    retained = _retained(times, policy, now)
    newest_first = sorted(new, key=lambda one: one.changed_at, reverse=True)
    return tuple(one for one in newest_first if one.changed_at in retained)


def expired_copies(
    copies: Sequence[CheckpointCopy],
    policy: RetentionPolicy,
    now: datetime,
    trust: Trust | None = None,
) -> tuple[CheckpointCopy, ...]:
    """Return the copies to delete, oldest first.

    The newest trusted copy is never among them, nor the newest of all if none is trusted.
    """
    ordered = preferred(copies, trust or Trust())
    kept = [
        copy
        for copy in ordered[: policy.keep]
        if copy == ordered[0] or policy.max_age is None or now - copy.saved_at <= policy.max_age
    ]
    return tuple(sorted((copy for copy in copies if copy not in kept), key=_order))


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
