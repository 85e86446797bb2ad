"""Trends of fleets and jobs over a range of time: faults, repairs and goodput."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from holdfast.apps.views.goodput import Goodput
from holdfast.apps.views.nodes import NodeStatus
from holdfast.decisions.planned_work import is_planned
from holdfast.kit.serial import to_plain
from holdfast.model.incidents import Incident

_NONE = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Range of time, in intervals of equal length."""

    begin: datetime
    end: datetime
    intervals: int

    @property
    def step(self) -> timedelta:
        """Length of an interval."""
        return (self.end - self.begin) / self.intervals

    def place(self, at: datetime) -> int | None:
        """Index of the interval that contains a time; None outside of the range."""
        if not self.begin <= at <= self.end:
            return None
        return min(int((at - self.begin) / self.step), self.intervals - 1)

    def parts(self, begin: datetime, end: datetime) -> Iterator[tuple[int, timedelta]]:
        """Yield the intervals that a span overlaps, and for how long."""
        begin, end = max(begin, self.begin), min(end, self.end)
        first = self.place(begin) if begin < end else None
        for place in range(first, self.intervals) if first is not None else ():
            starts_at = self.begin + place * self.step
            overlap = min(end, starts_at + self.step) - max(begin, starts_at)
            if overlap <= _NONE:
                return
            yield place, overlap


@dataclass(slots=True, kw_only=True)
class Interval:
    """Totals of one interval."""

    at: datetime
    """Its beginning."""

    incidents: int = 0
    """Unplanned incidents that were detected in it."""

    planned: int = 0
    """Incidents of planned work that began in it."""

    draining: float = 0.0
    """Mean number of nodes that waited for their repair."""

    repairing: float = 0.0
    checking: float = 0.0
    in_service: float = 0.0
    """Mean number of nodes of managed fleets without an open incident."""

    productive_s: float = 0.0
    """Productive job time in seconds."""

    job_s: float = 0.0
    """Job time in seconds."""

    @property
    def goodput(self) -> float | None:
        """Productive share of the job time, from 0 to 1; None without jobs."""
        return self.productive_s / self.job_s if self.job_s else None


def trends(
    within: Range,
    incidents: Iterable[tuple[Incident, bool]],
    nodes: Sequence[NodeStatus],
    jobs: Sequence[Goodput],
) -> dict[str, Any]:
    """Return the totals of a range and of its intervals; durations in seconds.

    MTBF is the time of all nodes by the number of unplanned incidents. A node counts from its
    creation, or from the first time known of any node, job or incident. Incidents of checkpoints
    do not count. Nodes by state are derived from the same history: a node that was cordoned by
    others, or was still joining, counts as in service.

    Args:
        within: the range.
        incidents: incidents, and for each whether its fleet is managed now.
        nodes: the nodes of today.
        jobs: goodput of the jobs.

    """
    rows = [Interval(at=within.begin + number * within.step) for number in range(within.intervals)]
    cases = [(one, is_active) for one, is_active in incidents if one.node]
    for one, is_active in cases:
        _add_incident(rows, within, one, within.end if is_active else None)
    for job in jobs:
        _add_job(rows, within, job)
    known_since = _known_since(within, cases, nodes, jobs)
    managed = [one for one, is_active in cases if is_active]
    _add_in_service(rows, within, managed, _lifespans(managed, nodes, known_since, within.end))
    faults = [one for one, _ in cases if not is_planned(one.reason)]
    count = sum(within.place(one.detected_at) is not None for one in faults)
    repairs = [
        one.released_at - one.detected_at
        for one in faults
        if one.released_at is not None and within.place(one.released_at) is not None
    ]
    node_time = sum(
        (within.end - max(known_since, one.created_at or known_since) for one in nodes), _NONE
    )
    job_s = sum(row.job_s for row in rows)
    days = (within.end - known_since) / timedelta(days=1)
    return {
        "begin": to_plain(within.begin),
        "end": to_plain(within.end),
        "known_since": to_plain(known_since),
        "nodes": len(nodes),
        "incidents": count,
        "incidents_per_day": count / days if days else None,
        "mtbf_s": node_time.total_seconds() / count if count else None,
        "repairs": len(repairs),
        "repair_s": sum(repairs, _NONE).total_seconds() / len(repairs) if repairs else None,
        "longest_repair_s": max(repairs).total_seconds() if repairs else None,
        "goodput": sum(row.productive_s for row in rows) / job_s if job_s else None,
        "intervals": [{**to_plain(row), "goodput": row.goodput} for row in rows],
    }


def _add_incident(
    rows: Sequence[Interval], within: Range, one: Incident, now: datetime | None
) -> None:
    """Add an incident; ``now`` ends its current phase, None if nothing manages its node."""
    place = within.place(one.detected_at)
    if place is not None and is_planned(one.reason):
        rows[place].planned += 1
    elif place is not None:
        rows[place].incidents += 1
    for phase, begin, end in _phases(one, now):
        for place, overlap in within.parts(begin, end):
            setattr(rows[place], phase, getattr(rows[place], phase) + overlap / within.step)


_Span = tuple[datetime, datetime]


def _phases(one: Incident, now: datetime | None) -> Iterator[tuple[str, datetime, datetime]]:
    """Yield the phases out of service; ``now`` ends the current one, None leaves it out."""
    over_at = one.ended_at or now
    spans = (
        ("draining", one.quarantined_at, one.drained_at),
        ("repairing", one.drained_at, one.repaired_at),
        ("checking", one.repaired_at, one.released_at),
    )
    for phase, begin, ended_at in spans:
        end = ended_at or over_at
        if begin is None or end is None:
            return
        yield phase, begin, end
        if ended_at is None:
            return


def _add_in_service(
    rows: Sequence[Interval], within: Range, managed: Iterable[Incident], spans: Iterable[_Span]
) -> None:
    """Add the time of all nodes, without that of their incidents."""
    for begin, end in spans:
        for place, overlap in within.parts(begin, end):
            rows[place].in_service += overlap / within.step
    for one in managed:
        for _, begin, end in _phases(one, within.end):
            for place, overlap in within.parts(begin, end):
                rows[place].in_service -= overlap / within.step
    for row in rows:
        row.in_service = max(0.0, row.in_service)


def _lifespans(
    managed: Iterable[Incident],
    nodes: Sequence[NodeStatus],
    known_since: datetime,
    now: datetime,
) -> Iterator[_Span]:
    """Yield beginning and end of present nodes, and of nodes that incidents name as gone."""
    began: dict[str, datetime] = {}
    gone: dict[str, datetime] = {}
    for one in managed:
        if one.successor and one.repaired_at is not None:
            began[one.successor] = one.repaired_at
        left_at = one.repaired_at if one.successor else one.ended_at
        gone[one.node] = left_at or now
    for node in nodes:
        gone.pop(node.name, None)
        yield node.created_at or began.get(node.name, known_since), now
    for name, left_at in gone.items():
        yield began.get(name, known_since), left_at


def _add_job(rows: Sequence[Interval], within: Range, job: Goodput) -> None:
    for place, overlap in within.parts(job.begun_at, job.ended_at):
        rows[place].job_s += overlap.total_seconds()
    for one in job.attempts:
        for place, overlap in within.parts(one.running_at, one.failed_at - one.redone):
            rows[place].productive_s += overlap.total_seconds()


def _known_since(
    within: Range,
    incidents: Iterable[tuple[Incident, bool]],
    nodes: Iterable[NodeStatus],
    jobs: Iterable[Goodput],
) -> datetime:
    """Return the first time that is known of anything, or the beginning of the range."""
    times = [
        within.end,
        *(one.detected_at for one, _ in incidents),
        *(one.created_at or one.phase_since for one in nodes),
        *(one.begun_at for one in jobs),
    ]
    return max(within.begin, min(times))
