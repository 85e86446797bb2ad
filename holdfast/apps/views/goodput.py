"""How the time of a job was spent: in training that lasted, and in all that failures cost."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from holdfast.apps.views.jobs import Attempt, JobStatus

_NONE = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What one failure cost, until all ranks ran again."""

    attempt: int
    """The one that it ended."""

    kind: str
    reason: str
    node: str
    incident_id: str
    at: datetime
    stopping: timedelta
    waiting: timedelta
    starting: timedelta
    redone: timedelta
    """Training that the next attempt did again; 0 where the job tells no steps."""

    @property
    def whole(self) -> timedelta:
        """All of it."""
        return self.stopping + self.waiting + self.starting + self.redone


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """One attempt, cut into what follows in it: starting, running, stopping."""

    attempt: Attempt
    begun_at: datetime
    running_at: datetime
    failed_at: datetime
    ended_at: datetime

    @property
    def running(self) -> timedelta:
        """Between its start and its failure or end."""
        return self.failed_at - self.running_at

    @property
    def redone(self) -> timedelta:
        """The share of its time that its lost steps are of all its steps."""
        one = self.attempt
        if one.lost_steps is None or one.first_step is None or one.last_step is None:
            return _NONE
        steps = one.last_step - one.first_step
        return self.running * min(1.0, one.lost_steps / steps) if steps > 0 else _NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """The time of one job, from its beginning to its end or to the present, by what it was."""

    job: str
    begun_at: datetime
    ended_at: datetime
    productive: timedelta
    """Training whose steps were never done again, as far as the job tells its steps."""

    redone: timedelta
    starting: timedelta
    waiting: timedelta
    stopping: timedelta
    stays: tuple[Stay, ...]
    """Its attempts, oldest first."""

    losses: tuple[Loss, ...]
    reports_steps: bool
    """Whether the redone part of each failure is known."""

    @property
    def whole(self) -> timedelta:
        """The sum of all parts."""
        return self.ended_at - self.begun_at

    @property
    def share(self) -> float | None:
        """Productive time of all time, from 0 to 1; None before the first moment."""
        return self.productive / self.whole if self.whole else None


def goodput(job: JobStatus, now: datetime) -> Goodput | None:
    """How the time of a job was spent; None before its first attempt.

    Attempts that are not remembered any more are left out, and the time before the first that is.

    Args:
        job: with its attempts, oldest first.
        now: where the time of a job ends that goes on.

    """
    stays = tuple(_stays(job, now))
    if not stays:
        return None
    begun_at = stays[0].begun_at
    ended_at = max(stays[-1].ended_at, now if job.is_active else stays[-1].ended_at)
    losses = tuple(_losses(stays, ended_at))
    running = sum((one.running for one in stays), _NONE)
    redone = sum((one.redone for one in stays), _NONE)
    starting = sum((one.running_at - one.begun_at for one in stays), _NONE)
    stopping = sum((one.ended_at - one.failed_at for one in stays), _NONE)
    return Goodput(
        job=job.ref,
        begun_at=begun_at,
        ended_at=ended_at,
        productive=running - redone,
        redone=redone,
        starting=starting,
        stopping=stopping,
        waiting=ended_at - begun_at - running - starting - stopping,
        stays=stays,
        losses=losses,
        reports_steps=all(one.attempt.lost_steps is not None for one in stays if _is_over(one)),
    )


def by_cause(all_losses: Sequence[Loss]) -> Mapping[tuple[str, str], timedelta]:
    """``(kind, reason) -> what it cost in all``, the dearest first."""
    found: defaultdict[tuple[str, str], timedelta] = defaultdict(timedelta)
    for one in all_losses:
        found[one.kind, one.reason] += one.whole
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _is_over(stay: Stay) -> bool:
    """Whether a failure ended it, and another attempt went on from somewhere."""
    return stay.attempt.kind != ""


def _stays(job: JobStatus, now: datetime) -> Iterator[Stay]:
    """Each attempt; times that contradict each other are moved to where the clock had been."""
    at = None
    for one in job.attempts:
        begun_at = max(one.started_at, at or one.started_at)
        over_at = now if job.is_active else job.phase_since
        ended_at = max(begun_at, one.stopped_at or over_at)
        failed_at = max(begun_at, ended_at - (one.stopped_in or _NONE))
        yield Stay(
            attempt=one,
            begun_at=begun_at,
            running_at=min(failed_at, begun_at + _took_to_start(one, failed_at - begun_at)),
            failed_at=failed_at,
            ended_at=ended_at,
        )
        at = ended_at


def _took_to_start(one: Attempt, whole: timedelta) -> timedelta:
    """Without a word on when all ranks ran, steps show that they did; else they never did."""
    if one.started_in is not None:
        return one.started_in
    return _NONE if one.last_step is not None else whole


def _losses(stays: Sequence[Stay], ended_at: datetime) -> Iterator[Loss]:
    following = [*((one, other) for one, other in pairwise(stays)), (stays[-1], None)]
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
