"""Job metrics of the controller, in Prometheus' text format."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from holdfast.adapters.telemetry.exposition import LabelSet, family, labels
from holdfast.apps.controller.progress import Progress
from holdfast.model.events import (
    AttemptKilled,
    AttemptStarted,
    AttemptStopped,
    Event,
    JobFinished,
    JobLossFault,
)
from holdfast.model.job_views import JobView
from holdfast.model.jobs import FailureKind, JobPhase
from holdfast.model.names import Reason
from holdfast.ports.clock import Clock
from holdfast.ports.jobs import JobBackend
from holdfast.ports.leadership import Leadership

_OUTCOMES: Final = tuple(phase for phase in JobPhase if phase.is_final)
_LOSS_FAULTS: Final = (Reason.LOSS_NOT_FINITE, Reason.LOSS_SPIKED)
_PARTS: Final = ("stopping", "waiting", "starting")
"""Stages of a recovery, as ``AttemptStarted`` reports them."""


class JobMetrics:
    """An ``EventSink`` that counts.

    Counters start at 0, so that the first event is an increase.
    """

    def __init__(self, leadership: Leadership, clock: Clock) -> None:
        self._leadership = leadership
        self._clock = clock
        self._lock = threading.Lock()
        self._started = self._killed = self._recovered = 0
        self._failures = Counter({labels(kind=kind): 0 for kind in FailureKind})
        self._loss_faults = Counter({labels(reason=reason): 0 for reason in _LOSS_FAULTS})
        self._finished = Counter({labels(outcome=phase): 0 for phase in _OUTCOMES})
        self._seconds: dict[LabelSet, float] = {labels(part=part): 0.0 for part in _PARTS}
        self._jobs: tuple[JobView, ...] = ()

    def emit(self, event: Event) -> None:
        """See ``EventSink.emit``."""
        with self._lock:
            match event:
                case AttemptStarted():
                    self._started += 1
                    self._count_recovery(event)
                case AttemptStopped(kind=kind):
                    self._failures[labels(kind=kind)] += 1
                    if event.reason in _LOSS_FAULTS:
                        self._loss_faults[labels(reason=event.reason)] += 1
                case JobLossFault(reason=reason):
                    self._loss_faults[labels(reason=reason)] += 1
                case AttemptKilled():
                    self._killed += 1
                case JobFinished(outcome=outcome):
                    self._finished[labels(outcome=outcome)] += 1

    def seen(self, jobs: tuple[JobView, ...]) -> None:
        """Store the jobs that have not ended, as of now."""
        self._jobs = jobs

    def families(self) -> Iterator[str]:
        """Yield all metric families with their current values."""
        with self._lock:
            # fmt: off
            yield family("holdfast_job_attempts_total", "counter",
                "Attempts whose ranks were all launched.", {(): self._started})
            yield family("holdfast_job_failures_total", "counter",
                "Attempts stopped after a failure, by cause.", dict(self._failures))
            yield family("holdfast_job_loss_faults_total", "counter",
                "Attempts whose loss was not finite or spiked, by reason.",
                dict(self._loss_faults))
            yield family("holdfast_job_kills_total", "counter",
                "Attempts killed after the grace period.", {(): self._killed})
            yield family("holdfast_jobs_finished_total", "counter",
                "Jobs that ended, by outcome.", dict(self._finished))
            yield family("holdfast_job_recoveries_total", "counter",
                "Attempts that resumed after a failure.", {(): self._recovered})
            yield family("holdfast_job_recovery_seconds_total", "counter",
                "Time from a failure until all ranks run again, by stage.",
                dict(self._seconds))
            # fmt: on
        now = self._clock.now()
        jobs = self._jobs if self._leadership.is_held() else ()
        samples = {
            labels(job_name=job.spec.name, phase=job.record.phase): (
                now - job.record.phase_since
            ).total_seconds()
            for job in jobs
        }
        about = "Time in the current phase of each job; reported by the leader only."
        yield family("holdfast_job_phase_seconds", "gauge", about, samples)

    def _count_recovery(self, event: AttemptStarted) -> None:
        if event.stopped_in is None:
            return
        self._recovered += 1
        took = (event.stopped_in, event.waited, event.started_in)
        for part, one in zip(_PARTS, took, strict=True):
            if one is not None:
                self._seconds[labels(part=part)] += one.total_seconds()


class WatchedJobs:
    """A ``JobBackend`` that shows each snapshot to someone, and its calls to ``Progress``."""

    def __init__(
        self,
        backend: JobBackend,
        seen: Callable[[tuple[JobView, ...]], None],
        progress: Progress,
    ) -> None:
        self._read = progress.tracked("reading the jobs", backend.jobs)
        self._seen = seen
        self.put = progress.tracked("writing the record of the job", backend.put)
        self.launch = progress.tracked("launching the job", backend.launch)
        self.stop = progress.tracked("stopping the job", backend.stop)
        self.kill = progress.tracked("killing the job", backend.kill)
        self.moved_checkpoints = backend.moved_checkpoints

    def jobs(self) -> tuple[JobView, ...]:
        """See ``JobBackend.jobs``."""
        found = self._read()
        self._seen(found)
        return found
