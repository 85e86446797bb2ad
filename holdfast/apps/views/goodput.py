"""Goodput of a job: productive training time, and the time that failures cost."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from holdfast.apps.views.jobs import Attempt, JobStatus
from holdfast.kit.serial import to_plain

_NONE = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Time that one failure cost, until all ranks ran again."""

    attempt: int
    """Number of the attempt that the failure ended."""

    kind: str
    reason: str
    node: str
    incident_id: str
    at: datetime
    stopping: timedelta
    waiting: timedelta
    starting: timedelta
    redone: timedelta
    """Training that the next attempt repeated; 0 if the job reports no steps."""

    @property
    def whole(self) -> timedelta:
        """Sum of all parts."""
        return self.stopping + self.waiting + self.starting + self.redone


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptTimes:
    """Times of one attempt: it starts, runs and stops."""

    attempt: Attempt
    begun_at: datetime
    running_at: datetime
    failed_at: datetime
    ended_at: datetime

    @property
    def running(self) -> timedelta:
        """Time from when all ranks run to the failure or the end."""
        return self.failed_at - self.running_at

    @property
    def redone(self) -> timedelta:
        """Running time that was lost: its share is that of the lost steps among all steps."""
        one = self.attempt
        if one.lost_steps is None or one.first_step is None or one.last_step is None:
            return _NONE
        steps = one.last_step - one.first_step
        return self.running * min(1.0, one.lost_steps / steps) if steps > 0 else _NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """Time of one job by use, from its first attempt to its end or to the present."""

    job: str
    begun_at: datetime
    ended_at: datetime
    productive: timedelta
    """Training whose steps were not repeated, as far as the job reports steps."""

    redone: timedelta
    starting: timedelta
    waiting: timedelta
    stopping: timedelta
    attempts: tuple[AttemptTimes, ...]
    """Times of its attempts, oldest first."""

    losses: tuple[Loss, ...]
    reports_steps: bool
    """Whether the repeated training of each failure is known."""

    @property
    def whole(self) -> timedelta:
        """Sum of all parts."""
        return self.ended_at - self.begun_at

    @property
    def share(self) -> float | None:
        """Productive share of the time, from 0 to 1; None if no time has passed."""
        return self.productive / self.whole if self.whole else None


def goodput(job: JobStatus, now: datetime) -> Goodput | None:
    """Return the goodput of a job; None before its first attempt.

    Omits attempts that are no longer recorded, and the time before the first recorded one.

    Args:
        job: the job, with its attempts oldest first.
        now: end of the time of an active job.

    """
    attempts = tuple(_attempt_times(job, now))
    if not attempts:
        return None
    begun_at = attempts[0].begun_at
    ended_at = max(attempts[-1].ended_at, now if job.is_active else attempts[-1].ended_at)
    losses = tuple(_losses(attempts, ended_at))
    running = sum((one.running for one in attempts), _NONE)
    redone = sum((one.redone for one in attempts), _NONE)
    starting = sum((one.running_at - one.begun_at for one in attempts), _NONE)
    stopping = sum((one.ended_at - one.failed_at for one in attempts), _NONE)
    return Goodput(
        job=job.ref,
        begun_at=begun_at,
        ended_at=ended_at,
        productive=running - redone,
        redone=redone,
        starting=starting,
        stopping=stopping,
        waiting=ended_at - begun_at - running - starting - stopping,
        attempts=attempts,
        losses=losses,
        reports_steps=all(
            one.attempt.lost_steps is not None for one in attempts if _has_failed(one)
        ),
    )


def by_cause(all_losses: Sequence[Loss]) -> Mapping[tuple[str, str], timedelta]:
    """Return ``(kind, reason) -> total time lost``, the greatest loss first."""
    found: defaultdict[tuple[str, str], timedelta] = defaultdict(timedelta)
    for one in all_losses:
        found[one.kind, one.reason] += one.whole
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _has_failed(times: AttemptTimes) -> bool:
    """Whether a failure ended the attempt."""
    return times.attempt.kind != ""


def _attempt_times(job: JobStatus, now: datetime) -> Iterator[AttemptTimes]:
    """Yield the times of each attempt, made monotonic where the clock was set back."""
    at = None
    for one in job.attempts:
        begun_at = max(one.started_at, at or one.started_at)
        over_at = now if job.is_active else job.phase_since
        ended_at = max(begun_at, one.stopped_at or over_at)
        failed_at = max(begun_at, ended_at - (one.stopped_in or _NONE))
        yield AttemptTimes(
            attempt=one,
            begun_at=begun_at,
            running_at=min(failed_at, begun_at + _took_to_start(one, failed_at - begun_at)),
            failed_at=failed_at,
            ended_at=ended_at,
        )
        at = ended_at


def _took_to_start(one: Attempt, whole: timedelta) -> timedelta:
    """Return the start time of an attempt, given its time ``whole`` until its failure or end.

    If it is not recorded when all ranks ran, steps show that they ran at once; without steps, they
    never ran.
    """
    if one.started_in is not None:
        return one.started_in
    return _NONE if one.last_step is not None else whole


def _losses(attempts: Sequence[AttemptTimes], ended_at: datetime) -> Iterator[Loss]:
    following = [*((one, other) for one, other in pairwise(attempts)), (attempts[-1], None)]
    for one, after in following:
        if one.attempt.kind:
            yield Loss(
                attempt=one.attempt.attempt,
                kind=one.attempt.kind,
                reason=one.attempt.reason,
                node=one.attempt.node,
                incident_id=one.attempt.incident_id,
                at=one.failed_at,
                stopping=one.ended_at - one.failed_at,
                waiting=(after.begun_at if after is not None else ended_at) - one.ended_at,
                starting=after.running_at - after.begun_at if after is not None else _NONE,
                redone=one.redone,
            )


def goodput_details(found: Sequence[Goodput]) -> dict[str, Any]:
    """Return job time by use, for each job and in total; durations in seconds."""
    parts = ("productive", "redone", "starting", "waiting", "stopping")
    jobs = [
        {
            "job": one.job,
            "begun_at": to_plain(one.begun_at),
            "ended_at": to_plain(one.ended_at),
            "share": one.share,
            "reports_steps": one.reports_steps,
            "parts": {name: _seconds(getattr(one, name)) for name in parts},
            "stays": [_stay(stay) for stay in one.attempts],
            "losses": [{**to_plain(loss), "whole": _seconds(loss.whole)} for loss in one.losses],
        }
        for one in found
    ]
    causes = by_cause([loss for one in found for loss in one.losses])
    return {
        "jobs": jobs,
        "causes": [
            {"kind": kind, "reason": reason, "seconds": _seconds(cost)}
            for (kind, reason), cost in causes.items()
        ],
    }


def _stay(stay: AttemptTimes) -> dict[str, Any]:
    times = (stay.begun_at, stay.running_at, stay.failed_at, stay.ended_at)
    return {
        "attempt": stay.attempt.attempt,
        "redone": _seconds(stay.redone),
        **dict(
            zip(
                ("begun_at", "running_at", "failed_at", "ended_at"),
                map(to_plain, times),
                strict=True,
            )
        ),
    }


def _seconds(duration: timedelta) -> float:
    return round(duration.total_seconds(), 3)
