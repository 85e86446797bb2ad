"""Corrects drift of jobs before each round of the leader, without decisions of the core."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Final

from holdfast.adapters.slurm.commands.comment import Rejected, noted, parse
from holdfast.adapters.slurm.commands.job_text import WAITING, BatchJob
from holdfast.adapters.slurm.commands.jobs import JobCommands
from holdfast.adapters.slurm.jobs.advice import advice, advice_message
from holdfast.adapters.slurm.jobs.holds import SOON, JobHolds
from holdfast.adapters.slurm.jobs.views import HELD, PAST, PREFIX, Case, is_reused
from holdfast.adapters.slurm.nodes.reservations import Reservations
from holdfast.adapters.slurm.nodes.state import RememberedJob, SlurmStore
from holdfast.model.events import JobInputRejected
from holdfast.model.jobs import JobPhase
from holdfast.ports.clock import Clock
from holdfast.ports.events import EventSink

_SETTLED: Final = timedelta(seconds=3)
"""Minimum run time of a job before its reservation is deleted."""

_ARCHIVED_JOBS: Final = 200
"""Number of jobs that are kept, to be shown, after Slurm has forgotten them."""


class JobDriftCorrection:
    """Keeps held jobs held, deletes unused reservations, and advises owners of jobs.

    A failure is reported and retried later; the round continues.
    """

    def __init__(
        self,
        slurm: JobCommands,
        holds: JobHolds,
        reservations: Reservations,
        store: SlurmStore,
        clock: Clock,
        events: EventSink,
    ) -> None:
        self._slurm = slurm
        self._holds = holds
        self._reservations = reservations
        self._store = store
        self._clock = clock
        self._events = events
        self._reported: set[JobInputRejected] = set()

    def run(
        self,
        found: Mapping[str, BatchJob],
        cases: Mapping[str, Case],
        resumable: Collection[str],
        config: Mapping[str, str],
    ) -> None:
        """Correct all drift that is found.

        Args:
            found: all jobs that Slurm knows.
            cases: the jobs that the core decides about.
            resumable: IDs of the jobs to resume after faults.
            config: the cluster's configuration.

        """
        for name, case in cases.items():
            if case.is_held:
                self._holds.attempt(f"holding {PREFIX}{name}", partial(self._holds.keep, case))
            elif not case.job.can_requeue and not case.job.is_over:
                allow = partial(self._slurm.update_job, name, "requeue=1")
                self._holds.attempt(f"enabling the requeue of {PREFIX}{name}", allow)
        self._end_failed(found)
        self._archive_ended(found, resumable)
        self._end_reservations(found, cases)
        self._holds.attempt("reserving spare nodes", self._reservations.keep_spares)
        keep_next = partial(self._reservations.keep_next, self._clock.now())
        self._holds.attempt("reserving returned nodes for the spare pool", keep_next)
        self._report(found, resumable)
        for name, case in cases.items():
            known = self._store.read().jobs.get(name)
            if known is not None and not known.notes:
                self._advise(case, known, appends=config.get("JobFileAppend") == "1")

    def archive_reused(self, found: Mapping[str, BatchJob]) -> None:
        """Archive the records of jobs whose number Slurm has given to another job."""
        for name, known in tuple(self._store.read().jobs.items()):
            job = found.get(name)
            if job is None or not is_reused(job, known):
                continue
            record = known.record
            if not record.phase.is_final:
                now, why = self._clock.now(), "Slurm reused its ID for another job"
                record = replace(record, phase=JobPhase.FAILED, phase_since=now, reason=why)
            self._archive(name, replace(known, record=record))

    def _archive(self, name: str, known: RememberedJob) -> None:
        self._store.forget_job(name)
        ended = known.record.phase_since.strftime("%Y%m%dT%H%M%SZ")
        self._store.put_job(f"{name}{PAST}{ended}", known)

    def _end_failed(self, found: Mapping[str, BatchJob]) -> None:
        """End jobs that failed while they were held: Slurm would start them."""
        for name, known in self._store.read().jobs.items():
            job, phase = found.get(name), known.record.phase
            is_same = job is not None and job.restarts == known.restarts
            if job is None or not is_same or not phase.is_final or job.state not in WAITING:
                continue
            what = f"cancelling {PREFIX}{name}, which failed"
            if self._holds.is_due(what):  # the state may have been read before the end
                self._note(job, f"failed: {known.record.reason}")
                self._holds.attempt(what, partial(self._slurm.cancel_job, name))

    def _note(self, job: BatchJob, text: str) -> None:
        """Set the note to the owner in the Comment of a job."""
        update = partial(self._slurm.update_job, job.id, f"comment={noted(job.comment, text)}")
        self._holds.attempt(f"writing the Comment of {PREFIX}{job.id}", update)

    def _end_reservations(self, found: Mapping[str, BatchJob], cases: Mapping[str, Case]) -> None:
        for name in self._reservations.jobs:
            if self._needs_no_reservation(cases.get(name)):
                end = partial(self._reservations.end, name, found.get(name))
                self._holds.attempt(f"ending the reservation of {PREFIX}{name}", end)
            else:
                renew = partial(self._reservations.renew, name, self._clock.now())
                self._holds.attempt(f"renewing the reservation of {PREFIX}{name}", renew)

    def _needs_no_reservation(self, case: Case | None) -> bool:
        if case is None:
            return True
        began, is_running = case.job.started_at, case.run.record.phase is JobPhase.RUNNING
        if not is_running or not case.job.is_at_work or began is None:
            return False
        return self._clock.now() >= began + _SETTLED

    def _archive_ended(self, found: Mapping[str, BatchJob], resumable: Collection[str]) -> None:
        """Archive jobs that no longer exist, and release those whose auto-resume was turned off."""
        for name, known in tuple(self._store.read().jobs.items()):
            job = found.get(name)
            if job is None and known.record.phase.is_final and PAST not in name:
                self._archive(name, known)
            elif job is not None and name not in resumable:
                if known.record.phase in HELD and job.state in WAITING:
                    release = partial(self._slurm.update_job, name, SOON)
                    self._holds.attempt(f"releasing {PREFIX}{name}", release)
                self._store.forget_job(name)
        past = [name for name in self._store.read().jobs if PAST in name]
        past.sort(key=lambda name: self._store.read().jobs[name].record.phase_since)
        for name in past[:-_ARCHIVED_JOBS]:
            self._store.forget_job(name)

    def _report(self, found: Mapping[str, BatchJob], resumable: Collection[str]) -> None:
        """Report invalid values, once for as long as each exists."""
        reported = {
            _event(name, one)
            for name, job in found.items()
            if not job.is_over or name in resumable
            for one in parse(job.comment).rejected
        }
        for event in sorted(reported - self._reported, key=lambda one: (one.job, one.key)):
            self._events.emit(event)
        self._reported = reported

    def _advise(self, case: Case, known: RememberedJob, *, appends: bool) -> None:
        """Report, once, what the owner should change in a job; stored with the job."""
        found = list(advice(case.job, self._slurm.script(case.job.id), appends=appends))
        for one in found:
            self._events.emit(_event(case.job.id, one))
        notes = tuple(f"{one.key} is {one.value!r}: expected {one.expected}" for one in found)
        self._store.put_job(case.job.id, replace(known, notes=notes or ("",)))
        job = self._slurm.batch_jobs().get(case.job.id) if found else None  # current state
        if job is not None and job.is_at_work:
            text = advice_message(found)
            notify = partial(self._slurm.notify_job, job.number, text)
            self._holds.attempt(f"writing into the output of {PREFIX}{job.id}", notify)
            self._note(job, text)


def _event(job: str, rejected: Rejected) -> JobInputRejected:
    return JobInputRejected(
        job=f"{PREFIX}{job}",
        key=rejected.key,
        value=rejected.value,
        expected=rejected.expected,
    )
