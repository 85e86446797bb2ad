"""Summary of a run, shown at its end."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.adapters.local.store import LocalStore
from holdfast.apps.views.jobs import lost_steps
from holdfast.kit.units import format_duration
from holdfast.model.jobs import JobRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """One restart of the job. Durations in seconds."""

    attempt: int
    """The attempt that was stopped."""

    kind: str
    reason: str
    node: str
    stop_s: float
    """From the decision to stop to the end of the last rank."""

    start_s: float
    """From then to the launch of all ranks of the next attempt, including the wait for nodes."""

    lost_steps: int | None
    """Steps that the next attempt repeated; None if the job reports none."""

    incident_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Summary of a run."""

    id: str
    """Unique ID of the job."""

    name: str
    outcome: str
    reason: str
    attempts: int
    hardware_retries: int
    app_retries: int
    step: int | None
    seconds: float
    recoveries: tuple[Recovery, ...]
    checkpoint_dir: str
    directory: str


def recoveries(record: JobRecord) -> tuple[Recovery, ...]:
    """Return all restarts of a job, oldest first."""
    following: list[tuple[datetime | None, int | None]] = [
        (attempt.started_at, attempt.first_step) for attempt in record.attempts[1:]
    ]
    found = []
    for over, (started_at, first_step) in zip(record.attempts, following, strict=False):
        failure = over.failure
        if failure is None or started_at is None:
            continue
        found.append(
            Recovery(
                attempt=over.attempt,
                kind=failure.kind,
                reason=failure.reason,
                node=failure.node,
                stop_s=(over.stopped_at - failure.began_at).total_seconds(),
                start_s=(started_at - over.stopped_at).total_seconds(),
                lost_steps=lost_steps(over, first_step),
                incident_id=failure.incident_id,
            )
        )
    return tuple(found)


def summarize(store: LocalStore, job: str, *, directory: str) -> Summary:
    """Return the summary of a job.

    Args:
        store: store of the run or cluster.
        job: its ``JobSpec.name``.
        directory: directory of its logs.

    """
    record = store.job(job)[1]
    run = store.submissions()[job]
    return Summary(
        id=run.id,
        name=run.name,
        outcome=record.phase,
        reason=record.reason,
        attempts=record.attempt,
        hardware_retries=record.hardware_retries,
        app_retries=record.app_retries,
        step=record.attempts[-1].last_step if record.attempts else None,
        seconds=round((record.phase_since - run.started_at).total_seconds(), 3),
        recoveries=recoveries(record),
        checkpoint_dir=run.checkpoint_dir,
        directory=directory,
    )


def report_lines(summary: Summary) -> list[str]:
    """Return the lines of the summary for people."""
    took = format_duration_s(summary.seconds)
    lines = [f"{summary.name} {summary.outcome} after {took}: {summary.reason}"]
    for one in summary.recoveries:
        where = f" on {one.node}" if one.node else ""
        lost = "" if one.lost_steps is None else f", {one.lost_steps} steps repeated"
        lines.append(
            f"  attempt {one.attempt}: {one.reason}{where} ({one.kind}); stopped in "
            f"{format_duration_s(one.stop_s)}, running again "
            f"{format_duration_s(one.start_s)} later{lost}"
        )
    lines.append(
        f"  attempts: {summary.attempts}; retries: {summary.hardware_retries} hardware, "
        f"{summary.app_retries} application"
    )
    lines += [
        f"  job ID: {summary.id}",
        f"  checkpoints: {summary.checkpoint_dir}",
        f"  logs: {summary.directory}/logs",
    ]
    return lines


def format_duration_s(seconds: float) -> str:
    """Return ``format_duration`` of a number of seconds."""
    return format_duration(timedelta(seconds=seconds))
