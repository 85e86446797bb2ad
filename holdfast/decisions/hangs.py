"""When silence is a hang: one rule for progress files, heartbeat files and lines of a log."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.kit.units import format_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class HangLimits:
    """How long an attempt may show no progress."""

    startup: timedelta | None = None
    """From the start of the attempt to its first progress; None for no limit. Imports, compilation
    and loading a checkpoint take minutes, and a job that reports no progress at all is healthy."""

    pause: timedelta | None = None
    """From one progress to the next, from the first one on; None for no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptProgress:
    """What is known of the progress of one attempt."""

    started_at: datetime
    """When all its ranks ran."""

    last_at: datetime | None
    """When progress was seen last; None if there was none in this attempt."""

    known_until: datetime | None
    """All progress until then is in ``last_at``. Silence after it is unknown, not silence; None if
    nothing is known."""

    last: str = ""
    """The last progress for people to read, such as ``step 120``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """Why a job is taken for hung."""

    reason: str
    since: datetime
    evidence: str


def hangs_at(limits: HangLimits, started_at: datetime, last_at: datetime | None) -> datetime | None:
    """When the job hangs if no progress comes before; None if it never does."""
    if last_at is None:
        return started_at + limits.startup if limits.startup is not None else None
    return last_at + limits.pause if limits.pause is not None else None


def silence(
    limits: HangLimits, progress: AttemptProgress, *, reason: str, missing: str
) -> Hang | None:
    """The hang of a job that has shown no progress for too long; None if it has.

    Args:
        limits: how long it may be silent.
        progress: what is known of it.
        reason: of the hang.
        missing: what did not come, for people to read, such as ``no step was reported``.

    """
    at = hangs_at(limits, progress.started_at, progress.last_at)
    if at is None or progress.known_until is None or progress.known_until < at:
        return None
    if progress.last_at is None:
        waited = format_duration(limits.startup or timedelta(0))
        evidence = f"{missing} within {waited} of the start of the attempt"
        return Hang(reason=reason, since=progress.started_at, evidence=evidence)
    waited = format_duration(limits.pause or timedelta(0))
    last = f"last at {progress.last_at.isoformat(timespec='seconds').replace('+00:00', 'Z')}"
    if progress.last:
        last = (
            f"last {progress.last}, {format_duration(progress.known_until - progress.last_at)} ago"
        )
    evidence = f"{missing} for {waited}, {last}"
    return Hang(reason=reason, since=progress.last_at, evidence=evidence)


def is_unarmed(limits: HangLimits, progress: AttemptProgress) -> bool:
    """Whether a job that is to be restarted when it hangs has not begun to show progress.

    It is as long in coming as a hang would be; a limit on the startup makes up for that.
    """
    if limits.pause is None or limits.startup is not None or progress.last_at is not None:
        return False
    return (
        progress.known_until is not None
        and progress.known_until >= progress.started_at + limits.pause
    )
