"""Signals of a job that reports no steps, and when it seems to hang by them. Pure.

The best signal counts: steps, by the training API or by lines of a log; else checkpoints; else
activity alone. Without steps a hang is only reported, because a job that saves only its best model,
or that waits for a person, is silent and healthy.
"""

from dataclasses import dataclass, field
from datetime import datetime

from holdfast.decisions.job_activity import AcceleratorUse, JobActivity, silent_since
from holdfast.decisions.save_times import SaveTimes, save_limit
from holdfast.decisions.step_progress import StepProgress, SuspectedHang, suspected_hang
from holdfast.decisions.step_times import StallLimits, stall_limit
from holdfast.kit.units import format_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackSignals:
    """What is known of an attempt beside its steps."""

    saves: SaveTimes = SaveTimes()
    activity: JobActivity = field(default_factory=JobActivity)


def next_attempt(signals: FallbackSignals) -> FallbackSignals:
    """Return what is known as another attempt begins: the intervals between checkpoints."""
    return FallbackSignals(saves=SaveTimes(intervals=signals.saves.intervals))


def needs_accelerators(signals: FallbackSignals, now: datetime, limits: StallLimits) -> bool:
    """Return whether it depends on the accelerators whether the ranks are silent."""
    since = silent_since(signals.activity, now, limits.silence)
    return since is not None and signals.activity.accelerators is None


def suspected_silence(
    signals: FallbackSignals, now: datetime, limits: StallLimits
) -> SuspectedHang | None:
    """Return why a job without steps seems to hang; None if it does not."""
    activity, saves = signals.activity, signals.saves
    since = silent_since(activity, now, limits.silence)
    if since is not None and activity.accelerators is not None:
        return _suspected(since, f"{_missing(activity)} for {format_duration(limits.silence)}")
    limit = save_limit(saves, limits.floor)
    if limit is None or saves.seen_at is None or now - saves.seen_at < limit:
        return None
    longest = format_duration(saves.intervals.longest)
    text = f"no new checkpoint for {format_duration(limit)}; the longest time between two was "
    return _suspected(saves.seen_at, text + longest)


def are_steps_known(progress: StepProgress, limits: StallLimits) -> bool:
    """Return whether enough steps are known to detect a hang by steps alone."""
    return progress.step_at is not None and stall_limit(progress.times, limits) is not None


def best_suspicion(
    progress: StepProgress,
    fallback: SuspectedHang | None,
    limits: StallLimits,
    known_until: datetime | None,
) -> SuspectedHang | None:
    """Return why a job seems to hang, by the best signal that it has; None if it does not.

    Args:
        progress: steps of the job.
        fallback: why it seems to hang without them.
        limits: settings.
        known_until: all steps up to this time are known; None if nothing is known.

    """
    if fallback is None or are_steps_known(progress, limits):
        return suspected_hang(progress, limits, known_until)
    has_stepped = progress.step_at is not None and progress.step_at > fallback.since
    return None if has_stepped else fallback


def _missing(activity: JobActivity) -> str:
    """Return the kinds of activity that ranks do not show, as far as they are known."""
    kinds = ["no output", "no CPU time"]
    kinds += ["no network traffic"] if activity.traffic is not None else []
    kinds += ["no accelerator activity"] if activity.accelerators is AcceleratorUse.IDLE else []
    return f"{', '.join(kinds[:-1])} and {kinds[-1]} of the ranks"


def _suspected(since: datetime, evidence: str) -> SuspectedHang:
    return SuspectedHang(since=since, step=None, evidence=evidence)
