"""The jobs of runs on this machine: what the run remembers, and what the job says itself."""

import contextlib
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from holdfast.adapters.local.progress import Progress, read_progress
from holdfast.adapters.local.store import RunRecord
from holdfast.apps.fleet import NotFound
from holdfast.apps.job_fleet import Attempt, JobStatus, JobStory, Told, attempts_of
from holdfast.apps.run.summary import lost_steps
from holdfast.apps.runs import KnownRun, find_run, open_runs
from holdfast.engine.wording import sentence
from holdfast.kit.serial import from_plain
from holdfast.model import events
from holdfast.model.jobs import JobRecord, JobSpec

INTERRUPTED: Final = "interrupted"
"""What is said of a job that was not at its end when its Holdfast was killed."""

_EVENTS: Final = {
    kind.name: kind
    for kind in vars(events).values()
    if isinstance(kind, type) and issubclass(kind, events.Event)
}


@dataclass(frozen=True, slots=True)
class LocalJobs:
    """The ``Jobs`` of all runs, those that ended included."""

    home: Path

    def jobs(self) -> list[JobStatus]:
        """See ``Jobs.jobs``."""
        with open_runs(self.home, ended=True) as known:
            jobs = (job_status(run) for run in known if run.has_job)
            return sorted(jobs, key=lambda job: job.started_at)

    def describe(self, job: str) -> JobStory:
        """See ``Jobs.describe``."""
        with self._run(job) as run:
            told = tuple(_told(entry) for entry in run.store.events())
            return JobStory(status=job_status(run), told=told)

    def cancel(self, job: str, confirm: Callable[[JobStatus], None]) -> JobStatus:
        """See ``Jobs.cancel``."""
        with self._run(job) as run:
            status = job_status(run)
            if run.job()[1].phase.is_final or not run.is_active:
                raise NotFound(f"{job} does not run any more: its phase is {status.phase}")
            confirm(status)
            run.store.cancel_job(job)
            run.wake()
            return status

    def close(self) -> None:
        """Nothing is held open."""

    @property
    def none_yet(self) -> str:
        """See ``Jobs.none_yet``."""
        return "There was no run yet; start one with: holdfast run -- COMMAND"

    @contextlib.contextmanager
    def _run(self, job: str) -> Iterator[KnownRun]:
        with open_runs(self.home, ended=True) as known:
            yield find_run(job, known)


def job_status(run: KnownRun) -> JobStatus:
    """The job of a run.

    Raises:
        BackendError: its state cannot be read.

    """
    spec, record, cancel_requested = run.job()
    noted = run.store.run() or RunRecord(
        command=(), pid=0, started_at=record.phase_since, checkpoint_dir=""
    )
    is_interrupted = not (run.is_active or record.phase.is_final)
    reason = f"Holdfast was killed while the job was {record.phase}" if is_interrupted else ""
    attempts = tuple(_attempts(run, spec, record))
    return JobStatus(
        name=run.name,
        is_active=run.is_active and not record.phase.is_final,  # a cluster outlives its job
        phase=INTERRUPTED if is_interrupted else record.phase,
        phase_since=record.phase_since,
        reason=reason or record.reason,
        command=shlex.join(noted.command),
        pid=noted.pid,
        started_at=noted.started_at,
        nodes=spec.nodes,
        attempt=record.attempt,
        placement=record.placement,
        step=attempts[-1].last_step if attempts else None,
        hardware_retries=record.hardware_retries,
        max_retries=spec.max_retries,
        app_retries=record.app_retries,
        max_app_retries=spec.max_app_retries,
        grace=spec.grace,
        cancel_requested=cancel_requested,
        directory=str(run.directory.path),
        checkpoint_dir=noted.checkpoint_dir,
        attempts=attempts,
    )


def _attempts(run: KnownRun, spec: JobSpec, record: JobRecord) -> Iterator[Attempt]:
    attempts = attempts_of(record)
    is_over = len(attempts) == len(record.attempts)
    progress = Progress() if is_over else read_progress(run.directory.progress(record.attempt))
    resumed_from = [*(one.first_step for one in record.attempts[1:]), progress.first]
    for over, one, step in zip(record.attempts, attempts, resumed_from, strict=False):
        yield replace(one, lost_steps=lost_steps(over, step), logs=_logs(run, spec, one))
    for one in attempts[len(record.attempts) :]:
        logs = _logs(run, spec, one)
        yield replace(one, first_step=progress.first, last_step=progress.last, logs=logs)


def _logs(run: KnownRun, spec: JobSpec, one: Attempt) -> tuple[str, ...]:
    return tuple(str(run.directory.log(one.attempt, rank)) for rank in range(spec.nodes))


def event_told(entry: dict[str, Any], tell: Callable[[datetime, events.Event], None]) -> None:
    """Tell of an event of ``LocalStore.events``; one of another release is left out."""
    kind = _EVENTS.get(entry["event"])
    if kind is not None:
        tell(datetime.fromisoformat(entry["at"]), from_plain(kind, entry))


def _told(entry: dict[str, Any]) -> Told:
    """One event in the words of a person; one of another release by its name."""
    kind = _EVENTS.get(entry["event"])
    said = sentence(from_plain(kind, entry)) if kind is not None else entry["event"]
    at = datetime.fromisoformat(entry["at"])
    return Told(at=at, event=entry["event"], message=said, details=entry)
