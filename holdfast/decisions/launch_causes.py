"""Failures of a round after which a restart would fail in the same way: pure."""

from dataclasses import replace
from datetime import datetime

from holdfast.decisions.failure_signatures import OWN_CAUSES, PEER_CAUSES
from holdfast.decisions.launch_events import Failed
from holdfast.decisions.launch_state import Failure, JobRounds, RoundSettings
from holdfast.decisions.permanent_causes import Circumstances, why_futile


def with_cause(
    failure: Failure, event: Failed, job: JobRounds, now: datetime, settings: RoundSettings
) -> Failure:
    """Return the failure of a rank in a running round with what its launcher reports of it."""
    is_at_start = not event.has_progress and now - job.since < settings.start_limit
    return replace(failure, cause=event.cause, at=now, is_at_start=is_at_start)


def with_another(job: JobRounds, event: Failed) -> JobRounds:
    """Return the state after another rank has failed in a round that has failed already.

    A rank that loses its peer ends at once. The peer, which failed first, may need longer, such as
    to free GPU memory: then its failure is the one of the round.
    """
    failure = job.failure
    if failure is None or not failure.cause or failure.is_shared:
        return job
    if failure.cause in PEER_CAUSES and event.cause in OWN_CAUSES:
        return replace(job, failure=_earlier(failure, event))
    if event.launcher == failure.launcher or event.cause != failure.cause:
        return job
    return replace(job, failure=replace(failure, is_shared=True))


def _earlier(failure: Failure, event: Failed) -> Failure:
    """Return the failure of a rank that had failed before the known one, but ended later."""
    return replace(
        failure,
        launcher=event.launcher,
        rank=event.rank,
        code=event.code,
        meaning=event.meaning,
        text=f"{event.text}; rank {failure.rank} ended before it: {failure.text}",
        cause=event.cause,
        is_at_start=failure.is_at_start and not event.has_progress,
    )


def permanent_cause(failure: Failure, job: JobRounds, settings: RoundSettings) -> str:
    """Return why a restart would fail in the same way; empty if it may succeed."""
    return _why(failure, job, settings, is_shared=failure.is_shared or settings.nodes == 1)


def awaited_until(job: JobRounds, settings: RoundSettings) -> datetime | None:
    """Return until when the ranks of other nodes run on after a failure; None if they do not.

    They do if the job fails at once as soon as one of them fails for the same cause.
    """
    failure = job.failure
    if failure is None or failure.at is None or job.stop_signal:
        return None
    if permanent_cause(failure, job, settings):
        return None
    if not _why(failure, job, settings, is_shared=True):
        return None
    return failure.at + settings.failure_margin


def _why(failure: Failure, job: JobRounds, settings: RoundSettings, *, is_shared: bool) -> str:
    if not settings.stops_on_permanent_cause:
        return ""
    seen = Circumstances(
        is_at_start=failure.is_at_start,
        is_shared=is_shared,
        is_repeated=job.history.cause == failure.cause,
    )
    return why_futile(failure.cause, seen)
