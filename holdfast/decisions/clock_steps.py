"""Records that were written before the clock was set.

Where the clock was ahead, their times are in the future after it is set back, and timeouts that
count from them would wait until the clock has caught up. Where it was behind, timeouts would pass
early by as much as it is set forward.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, TypeVar

from holdfast.model.jobs import JobPhase, JobRecord
from holdfast.model.nodes import NodeRecord, NodeView, Phase

Record = TypeVar("Record", JobRecord, NodeRecord)

TOLERANCE: Final = timedelta(minutes=1)
"""Maximum clock difference between machines: some times in records are those of other machines,
such as the API server."""

CONFIRMED_AFTER: Final = timedelta(seconds=10)
"""How long a record must stay in the future before it is corrected: a clock that is behind for a
moment must not date records back, as their timeouts would have passed when it is right again."""

_JOB_PHASES: Final = frozenset({JobPhase.WAITING, JobPhase.STOPPING})
"""Phases with timeouts and delays. While an attempt starts or runs, the times of its record also
distinguish its ranks from earlier ones."""

_NODE_PHASES: Final = frozenset(
    {Phase.JOINING, Phase.QUARANTINED, Phase.DRAINING, Phase.REBOOTING, Phase.REPLACING}
)
"""Phases with a timeout, except the deep health check, whose start time is its ID."""


def may_be_corrected(node: NodeView) -> bool:
    """Return whether the node has no pending request: storing its record could overwrite one."""
    return node.request is None


def is_ahead(record: JobRecord | NodeRecord, now: datetime) -> bool:
    """Return whether timeouts of a record count from a time after ``now``."""
    phases = _JOB_PHASES if isinstance(record, JobRecord) else _NODE_PHASES
    return record.phase in phases and lead(record, now) > TOLERANCE


def lead(record: JobRecord | NodeRecord, now: datetime) -> timedelta:
    """Return how far in the future the last time is from which timeouts of a record count."""
    return max(_counted(record)) - now


def dated_back(record: Record, now: datetime) -> Record:
    """Return a record that ``is_ahead`` with timeouts that count from ``now``.

    Delays that have not passed, of a backoff or before the next call to a provider, end now. What
    identifies attempts, checks and earlier remediations stays as it is.
    """
    return _dated(record, lambda at: min(at, now)) if is_ahead(record, now) else record


_ORDERED: Final = frozenset({Phase.REBOOTING, Phase.REPLACING})
"""Phases whose start distinguishes the new boot, or the new machine, from the one before."""


def dated_forward(record: Record, step: timedelta, now: datetime) -> Record:
    """Return a record whose timeouts pass no earlier although the clock was set forward.

    Delays that have not passed end by the time that the clock shows. What identifies attempts,
    checks, remediations, boots and machines stays as it is.

    Args:
        record: as it was written before.
        step: by how much the clock was set forward.
        now: the present time, which no time is moved beyond.

    """
    if record.phase not in (_JOB_PHASES if isinstance(record, JobRecord) else _NODE_PHASES):
        return record
    moved = _dated(record, lambda at: max(at, min(at + step, now)))
    if isinstance(record, JobRecord):
        return moved
    repair, later = record.remediation, moved.remediation
    return replace(
        moved,
        phase_since=record.phase_since if record.phase in _ORDERED else moved.phase_since,
        remediation=repair and later and replace(later, opened_at=repair.opened_at),
    )


def _dated(record: Record, dated: Callable[[datetime], datetime]) -> Record:
    """Return a record with other times from which timeouts count."""
    if isinstance(record, JobRecord):
        failure, start_after = record.failure, record.start_after
        return replace(
            record,
            phase_since=dated(record.phase_since),
            failure=failure and replace(failure, at=dated(failure.at)),
            start_after=start_after and dated(start_after),
        )
    repair = record.remediation
    return replace(
        record,
        phase_since=dated(record.phase_since),
        remediation=repair
        and replace(
            repair,
            opened_at=dated(repair.opened_at),
            ordered_at=repair.ordered_at and dated(repair.ordered_at),
            retry_at=repair.retry_at and dated(repair.retry_at),
        ),
    )


def _counted(record: JobRecord | NodeRecord) -> Iterator[datetime]:
    yield record.phase_since
    if isinstance(record, JobRecord):
        if record.failure is not None:
            yield record.failure.at
    elif record.remediation is not None:
        yield record.remediation.opened_at
        if record.remediation.ordered_at is not None:
            yield record.remediation.ordered_at
