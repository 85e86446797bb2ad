"""View of the jobs of runs on this machine, from the run's state and the job's own reports."""

import contextlib
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from holdfast.adapters.host.evidence_file import read_evidence
from holdfast.adapters.host.progress_file import Progress
from holdfast.adapters.local.attempt_views import (
    attempt_progress,
    read_step_rate,
    read_stragglers,
)
from holdfast.adapters.local.layout import cluster_dir, run_dir
from holdfast.apps.views.jobs import (
    INTERRUPTED,
    Attempt,
    JobDetails,
    JobEvent,
    JobStatus,
    attempts_of,
    lost_steps,
)
from holdfast.apps.views.not_found import NotFound, no_such
from holdfast.apps.views.rank_logs import LogPart, LogRequest, chosen_attempt, read_file
from holdfast.apps.views.runs import KnownJob, KnownRun, find_job, open_runs
from holdfast.decisions.event_levels import event_level
from holdfast.decisions.hang_evidence import HangEvidence
from holdfast.engine.wording import sentence
from holdfast.kit.serial import from_plain
from holdfast.model import events
from holdfast.model.sagemaker import EventLevel

_EVENTS: Final = {
    kind.name: kind
    for kind in vars(events).values()
    if isinstance(kind, type) and issubclass(kind, events.Event)
}


@dataclass(frozen=True, slots=True)
class RunJobs:
    """The ``Jobs`` of runs and clusters on this machine, those that ended included."""

    home: Path
    everything: bool = False
    """Whether ``jobs`` includes earlier jobs of clusters, and the jobs of deleted clusters."""

    cluster: str = ""
    """Name of the only cluster to include; empty for all."""

    def jobs(self) -> list[JobStatus]:
        """See ``Jobs.jobs``.

        Raises:
            NotFound: there is no cluster with this name.

        """
        with open_runs(self.home, ended=True, deleted=self.everything) as known:
            chosen = [run for run in known if self.cluster in ("", cluster_of(run))]
            if self.cluster and not chosen:
                names = [cluster_of(run) for run in known if run.directory.is_cluster]
                raise NotFound(no_such("cluster", self.cluster, list(dict.fromkeys(names))))
            jobs = [
                job_status(job)
                for run in chosen
                for job in (run.jobs() if self.everything else run.recent_jobs())
            ]
            return sorted(jobs, key=lambda job: job.started_at)

    def with_steps(self, jobs: Sequence[JobStatus], within: timedelta) -> list[JobStatus]:  # noqa: ARG002
        """See ``Jobs.with_steps``: they are known."""
        return list(jobs)

    def describe(self, job: str) -> JobDetails:
        """See ``Jobs.describe``."""
        with self.found(job) as known:
            reported = tuple(_job_event(entry) for entry in _events(known))
            return JobDetails(status=job_status(known), reported=reported)

    def cancel(self, job: str, confirm: Callable[[JobStatus], None]) -> JobStatus:
        """See ``Jobs.cancel``."""
        with self.found(job) as known:
            status = job_status(known)
            if not known.is_active:
                raise NotFound(f"{known.ref} is not active (phase {status.phase})")
            confirm(status)
            known.run.store.cancel_job(known.key)
            known.run.wake()
            return status

    def read_log(self, job: str, request: LogRequest) -> LogPart:
        """See ``Jobs.read_log``."""
        with self.found(job) as known:
            latest, ranks = known.record.attempt, known.spec.nodes
            attempt = chosen_attempt(known.ref, request, ranks, latest)
            return read_file(known.files.log(attempt, request.rank), request, attempt)

    def evidence(self, job: str, attempt: int | None) -> HangEvidence:
        """See ``Jobs.evidence``."""
        with self.found(job) as known:
            latest = known.record.attempt
            numbers = range(latest, 0, -1) if attempt is None else [attempt]
            files = [known.files.evidence(number) for number in numbers]
            file = next((one for one in files if one.is_file()), None)
            if file is None and attempt is not None:
                raise NotFound(f"{known.ref}: no evidence of attempt {attempt}; it did not hang")
            if file is None:
                raise NotFound(f"{known.ref}: no evidence, because no attempt hung")
            try:
                found = read_evidence(file)
            except (OSError, ValueError) as error:
                raise NotFound(f"{file}: cannot be read: {error}; delete it") from error
            return replace(found, job=known.name, attempt=numbers[files.index(file)])

    def close(self) -> None:
        """Do nothing; no connection is open."""

    @property
    def none_yet(self) -> str:
        """See ``Jobs.none_yet``."""
        if self.cluster:
            return (
                f"The cluster {self.cluster} has no jobs yet; start one with: holdfast run "
                f"--cluster {self.cluster} -- COMMAND"
            )
        return "There are no runs yet; start one with: holdfast run -- COMMAND"

    @contextlib.contextmanager
    def found(self, job: str) -> Iterator[KnownJob]:
        """Open a job by its ID or its name.

        Raises:
            NotFound: see ``find_job``.

        """
        with open_runs(self.home, ended=True, deleted=True) as known:
            yield find_job(job, known)


def cluster_of(run: KnownRun) -> str:
    """Return the name of a cluster, also of a deleted one; empty for a plain run."""
    if not run.directory.is_cluster:
        return ""
    uid = run.store.uid()
    return run.name.removesuffix(f"-{uid}") if uid and run.directory.is_deleted else run.name


def job_status(job: KnownJob) -> JobStatus:
    """Return the status of a job.

    Raises:
        BackendError: its state cannot be read.

    """
    spec, record, submission = job.spec, job.record, job.submission
    is_interrupted = not (job.run.is_active or record.phase.is_final)
    reason = f"Holdfast was killed while the job was {record.phase}" if is_interrupted else ""
    attempts = tuple(_attempts(job))
    return JobStatus(
        name=job.name,
        id=job.id,
        cluster=cluster_of(job.run),
        is_active=job.is_active,
        phase=INTERRUPTED if is_interrupted else record.phase,
        phase_since=record.phase_since,
        reason=reason or record.reason,
        command=shlex.join(submission.command),
        pid=submission.pid,
        started_at=submission.started_at,
        nodes=spec.nodes,
        attempt=record.attempt,
        placement=record.placement,
        step=attempts[-1].last_step if attempts else None,
        steps_per_second=read_step_rate(job.files, record.attempt),
        stragglers=read_stragglers(job.files.stragglers(record.attempt)),
        hardware_retries=record.hardware_retries,
        max_retries=spec.max_retries,
        app_retries=record.app_retries,
        max_app_retries=spec.max_app_retries,
        grace=spec.grace,
        cancel_requested=job.cancel_requested,
        directory=str(job.files.path),
        checkpoint_dir=_checkpoints(job),
        attempts=attempts,
    )


def _checkpoints(job: KnownJob) -> str:
    """Return the checkpoint directory, also after its run or cluster was moved; may be empty."""
    stored, run = job.submission.checkpoint_dir, job.run.directory
    home, cluster = run.path.parent.parent, cluster_of(job.run)
    before = cluster_dir(home, cluster) if cluster else run_dir(home, job.submission.name)
    moved = run.moved_from(before, Path(stored))
    return str(moved) if stored and moved.is_dir() else stored


def _attempts(job: KnownJob) -> Iterator[Attempt]:
    record, files = job.record, job.files
    attempts = attempts_of(record)
    is_over = len(attempts) == len(record.attempts)
    nodes = job.spec.nodes
    progress = Progress() if is_over else attempt_progress(files, record.attempt, nodes)
    resumed_from = [*(one.first_step for one in record.attempts[1:]), progress.first]
    for over, one, step in zip(record.attempts, attempts, resumed_from, strict=False):
        yield replace(one, lost_steps=lost_steps(over, step), logs=_logs(job, one))
    for one in attempts[len(record.attempts) :]:
        logs = _logs(job, one)
        yield replace(one, first_step=progress.first, last_step=progress.last, logs=logs)


def _logs(job: KnownJob, one: Attempt) -> tuple[str, ...]:
    return tuple(str(job.files.log(one.attempt, rank)) for rank in range(job.spec.nodes))


def _events(job: KnownJob) -> Iterator[dict[str, Any]]:
    """Yield the events of a plain run; of a cluster, those of the job and meanwhile of nodes."""
    if not job.run.directory.is_cluster:
        yield from job.run.store.events()
        return
    is_over = job.record.phase.is_final
    for entry in job.run.store.events():
        at = datetime.fromisoformat(entry["at"])
        is_in_time = job.submission.started_at <= at and not (
            is_over and at > job.record.phase_since
        )
        if entry["job"] == job.key if "job" in entry else is_in_time:
            yield entry


def emit_recorded(entry: dict[str, Any], emit: Callable[[datetime, events.Event], None]) -> None:
    """Emit an event of ``LocalStore.events``; skip events of other releases."""
    kind = _EVENTS.get(entry["event"])
    if kind is not None:
        emit(datetime.fromisoformat(entry["at"]), from_plain(kind, entry))


def _job_event(entry: dict[str, Any]) -> JobEvent:
    """Return an event with its message; one that this release does not know, with its name."""
    kind, name = _EVENTS.get(entry["event"]), entry["event"]
    event = from_plain(kind, entry) if kind is not None else None
    return JobEvent(
        at=datetime.fromisoformat(entry["at"]),
        event=name,
        level=event_level(event) if event is not None else EventLevel.INFO,
        message=sentence(event) if event is not None else name,
        details=entry,
    )
