"""Detection of hangs by missing progress: of progress files, heartbeat files and log lines."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.kit.units import format_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class HangLimits:
    """Maximum time without progress of an attempt."""

    startup: timedelta | None = None
    """Time from the start of the attempt to its first progress; None for no limit. Imports,
    compilation and loading a checkpoint take minutes, and a job that reports no progress at all is
    healthy."""

    pause: timedelta | None = None
    """Time between two reports of progress, from the first one on; None for no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptProgress:
    """Known progress of one attempt."""

    started_at: datetime
    """Time at which all its ranks ran."""

    last_at: datetime | None
    """Time of the last progress; None if there was none in this attempt."""

    known_until: datetime | None
    """All progress up to this time is in ``last_at``. Later progress is unknown, so its absence is
    no evidence of a hang; None if nothing is known."""

    last: str = ""
    """Last progress for people to read, such as ``step 120``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """Why a job counts as hung."""

    reason: str
    since: datetime
    at: datetime
    """Time from which it counts."""

    evidence: str
    rank: int | None = None
    """Rank that has printed the evidence; None if none has."""


def hangs_at(limits: HangLimits, started_at: datetime, last_at: datetime | None) -> datetime | None:
    """Return when the job hangs if it makes no progress before; None if it never does."""
    if last_at is None:
        return started_at + limits.startup if limits.startup is not None else None
    return last_at + limits.pause if limits.pause is not None else None


def silence(
    limits: HangLimits, progress: AttemptProgress, *, reason: str, missing: str
) -> Hang | None:
    """Return the hang of a job that has shown no progress for too long; None if it has.

    Args:
        limits: maximum time without progress.
        progress: known progress of the attempt.
        reason: reason code of the hang.
        missing: what is missing, for people to read, such as ``no step was reported``.

    """
    at = hangs_at(limits, progress.started_at, progress.last_at)
    if at is None or progress.known_until is None or progress.known_until < at:
        return None
    if progress.last_at is None:
        waited = format_duration(limits.startup or timedelta(0))
        evidence = f"{missing} within {waited} of the start of the attempt"
        return Hang(reason=reason, since=progress.started_at, at=at, evidence=evidence)
    waited = format_duration(limits.pause or timedelta(0))
    last = f"last at {progress.last_at.isoformat(timespec='seconds').replace('+00:00', 'Z')}"
    if progress.last:
        last = (
            f"last {progress.last}, {format_duration(progress.known_until - progress.last_at)} ago"
        )
    evidence = f"{missing} for {waited}, {last}"
    return Hang(reason=reason, since=progress.last_at, at=at, evidence=evidence)


def is_unarmed(limits: HangLimits, progress: AttemptProgress) -> bool:
    """Return whether a job that is to be restarted when it hangs has shown no progress at all yet.

    True once the time of a hang has passed since the start, unless a limit on the startup covers
    it.
    """
    if limits.pause is None or limits.startup is not None or progress.last_at is not None:
        return False
    return (
        progress.known_until is not None
        and progress.known_until >= progress.started_at + limits.pause
    )
