"""Jobs as people are shown them: what the run remembers, and what the job says itself."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from holdfast.adapters.local.progress import Progress, read_progress
from holdfast.adapters.local.store import RunRecord
from holdfast.apps.run.summary import lost_steps
from holdfast.apps.runs import KnownRun
from holdfast.model.jobs import AttemptRecord, JobPhase, JobRecord, JobSpec

INTERRUPTED: Final = "interrupted"
"""What is said of a job that was not at its end when its Holdfast was killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt of a job, over or not."""

    attempt: int
    placement: tuple[str, ...]
    """Node names in the order of the node ranks."""

    started_at: datetime
    stopped_at: datetime | None
    """None while it runs, and if Holdfast was killed before it ended."""

    first_step: int | None
    last_step: int | None
    lost_steps: int | None
    """Steps that the next attempt did again; None where that is not known."""

    kind: str = ""
    """Whose failure ended it; empty if none did."""

    reason: str = ""
    node: str = ""
    evidence: str = ""
    incident_id: str = ""
    logs: tuple[str, ...]
    """The log file of each node rank."""

    @property
    def lasted(self) -> timedelta | None:
        """From its start to its end."""
        return None if self.stopped_at is None else self.stopped_at - self.started_at


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """The job of one run."""

    name: str
    is_active: bool
    """Whether its run goes on."""

    phase: str
    """A ``JobPhase``, or ``INTERRUPTED``."""

    phase_since: datetime
    reason: str
    """Why it waits, or how it ended."""

    command: str
    """As a person would type it."""

    pid: int
    """Process of the run's Holdfast, while ``is_active``."""

    started_at: datetime
    nodes: int
    attempt: int
    placement: tuple[str, ...]
    """Node names in the order of the node ranks of the present or last attempt."""

    step: int | None
    """The last step that it reported; None where it reports none."""

    hardware_retries: int
    max_retries: int
    app_retries: int
    max_app_retries: int
    grace: timedelta
    cancel_requested: bool
    directory: str
    checkpoint_dir: str
    """Empty while the run is only beginning."""

    attempts: tuple[Attempt, ...]


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
        is_active=run.is_active,
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
    over = record.attempts
    is_over = record.attempt == (over[-1].attempt if over else 0)
    progress = Progress() if is_over else read_progress(run.directory.progress(record.attempt))
    resumed_from = [*(one.first_step for one in over[1:]), progress.first]
    for one, step in zip(over, resumed_from, strict=False):
        yield _attempt(run, spec, one, lost_steps(one, step))
    if not is_over:
        present = AttemptRecord(
            attempt=record.attempt,
            placement=record.placement,
            started_at=record.started_at or record.phase_since,
            stopped_at=record.phase_since,
            first_step=progress.first,
            last_step=progress.last,
            failure=record.failure if record.phase is JobPhase.STOPPING else None,
        )
        yield replace(_attempt(run, spec, present, None), stopped_at=None)


def _attempt(run: KnownRun, spec: JobSpec, one: AttemptRecord, lost: int | None) -> Attempt:
    failure = one.failure
    return Attempt(
        attempt=one.attempt,
        placement=one.placement,
        started_at=one.started_at,
        stopped_at=one.stopped_at,
        first_step=one.first_step,
        last_step=one.last_step,
        lost_steps=lost,
        kind=failure.kind if failure else "",
        reason=failure.reason if failure else "",
        node=failure.node if failure else "",
        evidence=failure.evidence if failure else "",
        incident_id=failure.incident_id if failure else "",
        logs=tuple(str(run.directory.log(one.attempt, rank)) for rank in range(spec.nodes)),
    )
