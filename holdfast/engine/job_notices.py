"""Reports what people should know of an attempt that runs on."""

from collections.abc import Iterator
from dataclasses import replace

from holdfast.decisions.loss_faults import loss_notice
from holdfast.model.events import (
    CheckpointChosen,
    Event,
    JobHangSuspected,
    JobLossFault,
    JobStragglerFound,
    JobUnwatched,
)
from holdfast.model.job_views import JobView
from holdfast.ports.events import EventSink


class JobNotices:
    """Emits each notice once per attempt."""

    def __init__(self, events: EventSink) -> None:
        self._events = events
        self._emitted: dict[tuple[str, type[Event]], Event] = {}

    def report(self, job: JobView) -> None:
        """Emit what is new about a running attempt."""
        if job.loss_fault is None:  # nothing is known of a fault of an earlier job of that name
            self._emitted.pop((job.spec.name, JobLossFault), None)
        for event in _notices(job):
            key = (job.spec.name, type(event))
            if not _is_known(event, self._emitted.get(key)):
                self._emitted[key] = event
                self._events.emit(event)

    def forget_all_but(self, names: set[str]) -> None:
        """Drop what was emitted about deleted jobs: it is new for the next job of the same name."""
        self._emitted = {key: event for key, event in self._emitted.items() if key[0] in names}


def _is_known(event: Event, emitted: Event | None) -> bool:
    """Return whether an event was emitted; later, more ranks may have reported the same loss."""
    if isinstance(event, JobLossFault) and isinstance(emitted, JobLossFault):
        return replace(emitted, why=event.why) == event
    return event == emitted


def _notices(job: JobView) -> Iterator[Event]:
    name, attempt = job.spec.name, job.record.attempt
    if job.checkpoint_notice:
        yield CheckpointChosen(job=name, attempt=attempt, why=job.checkpoint_notice)
    if job.unwatched:
        yield JobUnwatched(job=name, attempt=attempt, why=job.unwatched)
    if job.suspected_hang:
        yield JobHangSuspected(job=name, attempt=attempt, why=job.suspected_hang)
    if job.straggler is not None:
        yield JobStragglerFound(job=name, attempt=attempt, why=job.straggler.text)
    fault, notice = job.loss_fault, loss_notice(job.loss_fault)
    if fault is not None and notice:
        yield JobLossFault(
            job=name, attempt=attempt, reason=fault.reason, step=fault.step, why=notice
        )
