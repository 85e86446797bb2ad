"""``holdfast jobs``: the jobs of all runs on this machine, those that ended included."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import click

from holdfast.adapters.local.layout import default_home
from holdfast.apps.cli.job_logs import logs
from holdfast.apps.cli.output import (
    Column,
    Output,
    age,
    confirm_or_abort,
    output_option,
    print_details,
    print_json,
    print_rows,
    yes_option,
)
from holdfast.apps.cli.sections import print_lines, print_section
from holdfast.apps.cli.watch import show, watch_option
from holdfast.apps.clock import SystemClock
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.fleet import NotFound
from holdfast.apps.job_status import INTERRUPTED, Attempt, JobStatus, job_status
from holdfast.apps.runs import find_run, open_runs
from holdfast.engine.wording import sentence
from holdfast.kit.serial import from_plain, to_plain
from holdfast.kit.units import format_duration
from holdfast.model import events

_EVENTS = {
    kind.name: kind
    for kind in vars(events).values()
    if isinstance(kind, type) and issubclass(kind, events.Event)
}


@click.group()
def jobs() -> None:
    """List or describe jobs, read their logs, cancel them.

    JOB is the name of a job, which is that of its run.
    """


jobs.add_command(logs)


@jobs.command("list")
@watch_option
@output_option(Output.TABLE, Output.WIDE, Output.JSON)
def list_jobs(*, watch: bool, output: str) -> None:
    """List the jobs of all runs, the newest last."""
    show(_read, lambda statuses: _print(statuses, output), watch=watch)


@jobs.command("describe")
@click.argument("job")
@output_option(Output.TABLE, Output.JSON)
def describe_job(*, job: str, output: str) -> None:
    """Tell all about a job.

    That is its attempts, why each ended and where it ran, its logs, and what happened.
    """
    with open_runs(default_home(), ended=True) as known:
        run = find_run(job, known)
        status, told = job_status(run), run.store.events()
    if output == Output.JSON:
        print_json({**to_plain(status), "events": told})
    else:
        _describe(status, told)


@jobs.command("cancel")
@click.argument("job")
@yes_option
@output_option(Output.TABLE, Output.JSON)
def cancel_job(*, job: str, yes: bool, output: str) -> int:
    """End a job.

    Its ranks get SIGTERM, and SIGKILL after their grace period.
    """
    with open_runs(default_home(), ended=True) as known:
        run = find_run(job, known)
        status = job_status(run)
        spec, record, _ = run.job()
        if record.phase.is_final or not run.is_active:
            raise NotFound(f"{job} does not run any more: it is {status.phase}")
        confirm_or_abort(f"Cancel {job} ({status.phase}, attempt {status.attempt})?", yes=yes)
        run.store.cancel_job(spec.name)
        run.wake()
    if output == Output.JSON:
        print_json({"job": job, "cancel_requested": True})
    else:
        click.echo(f"{job}: asked to end; its ranks have {format_duration(spec.grace)} to do so")
    return ExitCode.OK


def _read() -> list[JobStatus]:
    with open_runs(default_home(), ended=True) as known:
        return sorted((job_status(run) for run in known), key=lambda job: job.started_at)


def _print(statuses: list[JobStatus], output: str) -> None:
    now = SystemClock().now()
    columns: list[Column[JobStatus]] = [
        Column(title="job", cell=lambda job: job.name),
        Column(title="phase", cell=lambda job: job.phase),
        Column(title="nodes", cell=lambda job: job.nodes),
        Column(title="attempt", cell=lambda job: job.attempt),
        Column(title="step", cell=lambda job: job.step),
        Column(title="hw retries", cell=lambda job: f"{job.hardware_retries}/{job.max_retries}"),
        Column(title="app retries", cell=lambda job: f"{job.app_retries}/{job.max_app_retries}"),
        Column(title="for", cell=lambda job: age(job.phase_since, now)),
        Column(title="reason", cell=lambda job: job.reason),
        Column(title="started", cell=lambda job: f"{age(job.started_at, now)} ago", wide=True),
        Column(title="command", cell=lambda job: job.command, wide=True),
        Column(title="directory", cell=lambda job: job.directory, wide=True),
    ]
    print_rows(
        statuses,
        columns,
        output=output,
        empty="There was no run yet; start one with: holdfast run -- COMMAND",
    )


def _describe(job: JobStatus, told: list[dict[str, Any]]) -> None:
    now = SystemClock().now()
    print_details(_details(job, now))
    columns: list[Column[Attempt]] = [
        Column(title="attempt", cell=lambda one: one.attempt),
        Column(title="started", cell=lambda one: f"{age(one.started_at, now)} ago"),
        Column(title="lasted", cell=_lasted),
        Column(title="steps", cell=_steps),
        Column(title="lost", cell=lambda one: one.lost_steps),
        Column(title="failure", cell=lambda one: one.kind),
        Column(title="reason", cell=lambda one: one.reason),
    ]
    print_section("Attempts", job.attempts, columns)
    print_lines("Why they ended", [(_name(one), _why(one)) for one in job.attempts if one.kind])
    print_lines("Where they ran", [(_name(one), ", ".join(one.placement)) for one in job.attempts])
    print_lines("Events", [_told(entry, job.started_at) for entry in told])


def _details(job: JobStatus, now: datetime) -> Iterator[tuple[str, object]]:
    yield "Job", job.name
    yield "Command", job.command
    yield "Phase", job.phase
    yield "Since", f"{age(job.phase_since, now)} ago"
    yield "Reason", job.reason or ("asked to end" if job.cancel_requested else "")
    if job.phase == INTERRUPTED:
        again = f"holdfast run --name {job.name} --nodes {job.nodes} -- {job.command}"
        yield "To go on", again
    yield "Started", f"{age(job.started_at, now)} ago"
    yield "Nodes", job.nodes
    yield "Attempt", job.attempt
    yield "Step", job.step
    yield (
        "Retries spent",
        (
            f"{job.hardware_retries} of {job.max_retries} for hardware, "
            f"{job.app_retries} of {job.max_app_retries} for the application"
        ),
    )
    yield "Checkpoints", job.checkpoint_dir
    yield "Logs", f"{job.directory}/logs/attempt-N/rank-N.log"


def _lasted(attempt: Attempt) -> str:
    return format_duration(attempt.lasted) if attempt.lasted is not None else ""


def _steps(attempt: Attempt) -> str:
    return "" if attempt.last_step is None else f"{attempt.first_step} to {attempt.last_step}"


def _name(attempt: Attempt) -> str:
    return f"Attempt {attempt.attempt}"


def _why(attempt: Attempt) -> str:
    where = f"on {attempt.node}: " if attempt.node else ""
    incident = f" (incident {attempt.incident_id})" if attempt.incident_id else ""
    return f"{where}{attempt.evidence}{incident}"


def _told(entry: dict[str, Any], since: datetime) -> tuple[str, str]:
    """One event in the words of a person; one of another release by its name."""
    seconds = (datetime.fromisoformat(entry["at"]) - since).total_seconds()
    kind = _EVENTS.get(entry["event"])
    said = sentence(from_plain(kind, entry)) if kind is not None else entry["event"]
    return f"{seconds:.2f}s", said
