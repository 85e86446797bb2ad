"""Steps of a job over its attempts, and when it seems to hang by what was learned of them. Pure."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from holdfast.decisions.step_times import (
    StallLimits,
    StepTimes,
    after_step,
    stall_limit,
    start_limit,
)
from holdfast.kit.units import format_duration

UNKNOWN_STEPS: Final = "without steps that show a hang, a job is not restarted"
"""What follows from a suspicion that has no step."""

_CLOCK_STEP: Final = timedelta(seconds=1)
"""Minimum step of the clock that counts; the limits on a hang are longer."""

_STARTS_LIMIT: Final = 32
"""Number of starts that are remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProgress:
    """Steps of the present attempt, and what was learned of it and of earlier ones."""

    began_at: datetime | None = None
    """Time at which the attempt began; None before the first one."""

    step: int | None = None
    """Last step of the attempt; None while none is known."""

    step_at: datetime | None = None
    """Time at which it became known; None while none is known."""

    times: StepTimes = StepTimes()
    starts: tuple[float, ...] = ()
    """Seconds from the beginning of attempts to their first steps, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspectedHang:
    """Job without a new step for longer than expected."""

    since: datetime
    """Time of its last step, or of the beginning of its attempt."""

    step: int | None
    """Last step of the attempt; None if it has reached none, or if the suspicion does not come from
    steps: then the job is never restarted for it."""

    evidence: str


def dated_anew(progress: StepProgress, step: timedelta) -> StepProgress:
    """Return the progress after the clock was set forward by ``step``, or back if it is negative.

    A job that trains would else count as hung, or one that hangs as training.
    """
    if progress.step_at is None or abs(step) < _CLOCK_STEP:
        return progress
    return replace(progress, step_at=progress.step_at + step)


def after_look(
    progress: StepProgress, *, began_at: datetime, step: int | None, now: datetime
) -> StepProgress:
    """Return what is known after a look at an attempt.

    A step that is there at the first look at an attempt teaches nothing: it is older.

    Args:
        progress: what was known before.
        began_at: time at which the attempt began.
        step: its last step; None if it has reached none.
        now: current time.

    """
    if progress.began_at != began_at:
        step_at = now if step is not None else None
        return replace(progress, began_at=began_at, step=step, step_at=step_at)
    if step is None or step == progress.step:
        return progress
    if progress.step_at is None:
        starts = (*progress.starts, (now - began_at).total_seconds())[-_STARTS_LIMIT:]
        return replace(progress, step=step, step_at=now, starts=starts)
    times = after_step(progress.times, now - progress.step_at)
    return replace(progress, step=step, step_at=now, times=times)


def suspicious_at(progress: StepProgress, limits: StallLimits) -> datetime | None:
    """Return when the job seems to hang if it reaches no step before; None if it never does."""
    if progress.began_at is None:
        return None
    if progress.step_at is None:
        limit = start_limit(progress.starts, limits)
        return None if limit is None else progress.began_at + limit
    limit = stall_limit(progress.times, limits)
    return None if limit is None else progress.step_at + limit


def suspected_hang(
    progress: StepProgress, limits: StallLimits, known_until: datetime | None
) -> SuspectedHang | None:
    """Return why a job seems to hang; None if it does not.

    Args:
        progress: its steps.
        limits: settings.
        known_until: all steps up to this time are known; None if nothing is known.

    """
    at, began_at = suspicious_at(progress, limits), progress.began_at
    if at is None or began_at is None or known_until is None or known_until < at:
        return None
    if progress.step_at is None:
        evidence = f"no step was reported within {format_duration(at - began_at)} of the start"
        if progress.starts:
            longest = timedelta(seconds=max(progress.starts))
            evidence += f"; the longest start before took {format_duration(longest)}"
        else:
            evidence += ", or the job reports no steps"
        return SuspectedHang(since=began_at, step=None, evidence=evidence)
    waited = format_duration(at - progress.step_at)
    evidence = f"no new step for {waited}, last step {progress.step}"
    if limits.timeout is None:
        longest = progress.times.longest
        evidence += f"; the longest pause between two steps was {format_duration(longest)}"
    return SuspectedHang(since=progress.step_at, step=progress.step, evidence=evidence)
