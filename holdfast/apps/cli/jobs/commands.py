"""``holdfast jobs``: lists, describes and cancels jobs of all runs or of a cluster."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import click

from holdfast.apps.cli.help import FullHelpGroup, examples
from holdfast.apps.cli.known_names import cluster_names, job_names
from holdfast.apps.cli.output import (
    LISTS,
    NAMED_LISTS,
    RESULTS,
    Column,
    OutputFormat,
    age,
    confirm_or_abort,
    dry_run_option,
    is_document,
    output_option,
    print_details,
    print_document,
    print_lines,
    print_rows,
    print_section,
    yes_option,
)
from holdfast.apps.cli.selecting import select_options, taken_selection
from holdfast.apps.cli.watch import show, watch_option
from holdfast.apps.cli.where import job_options, taken
from holdfast.apps.clock import SystemClock
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.target import Where, open_jobs
from holdfast.apps.views.jobs import (
    INTERRUPTED,
    Attempt,
    JobDetails,
    JobEvent,
    Jobs,
    JobStatus,
    RankStatus,
)
from holdfast.apps.views.selection import RowFields, Selection, selected
from holdfast.engine.recovery_text import recovery
from holdfast.kit.serial import to_plain
from holdfast.kit.units import format_duration
from holdfast.model.jobs import JobPhase

_STEPS_LIMIT: Final = timedelta(seconds=5)
"""Time to wait for steps that are read from logs: a node may not respond."""

_STATES: Final = (*(phase.value for phase in JobPhase), INTERRUPTED, "active")
_FIELDS: Final = RowFields[JobStatus](
    states=lambda job: (job.phase, "active") if job.is_active else (job.phase,),
    since=lambda job: job.phase_since,
    reason=lambda job: job.reason,
    jobs=lambda job: (job.name, job.id),
    labels={
        "name": lambda job: job.name,
        "cluster": lambda job: job.cluster,
        "namespace": lambda job: job.name.split("/")[-2] if "/" in job.name else "",
    },
)


_MODULES: Final = {
    name: f"holdfast.apps.cli.jobs.{name}" for name in ("doctor", "evidence", "logs")
}
"""Modules of commands that lists need not import."""


@click.group(cls=FullHelpGroup, modules=_MODULES)
def jobs() -> None:
    """List, describe, diagnose and cancel jobs, and read their logs.

    JOB is the ID or name of a job on this machine (by name the active job, else the last one). On
    Kubernetes it is KIND/NAMESPACE/NAME or a unique part of it.
    """


@examples(
    "holdfast jobs list",
    "holdfast jobs list --all --cluster ml-cluster",
    "holdfast jobs list --platform kubernetes --all-namespaces --watch",
    "holdfast jobs list --platform slurm --output json",
)
@jobs.command("list")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="List all jobs of the clusters on this machine, also earlier ones and those of deleted "
    "clusters.",
)
@click.option(
    "--cluster",
    metavar="NAME",
    shell_complete=cluster_names,
    help="List the jobs of this cluster on this machine.",
)
@job_options()
@select_options(_STATES, tuple(_FIELDS.labels))
@watch_option
@output_option(*NAMED_LISTS)
def list_jobs(*, watch: bool, output: str, no_headers: bool, **values: Any) -> None:
    """List the jobs of all runs and clusters, oldest first.

    For a cluster on this machine, lists the active jobs, or the last job if none is active.
    """
    selection = taken_selection(values)
    where = taken(values)
    with open_jobs(where) as known:
        show(
            lambda: _read(known, selection),
            lambda listing: _print(
                *listing, output, with_ids=where.everything, headers=not no_headers
            ),
            watch=watch,
        )


@examples(
    "holdfast jobs describe llama",
    "holdfast jobs describe pytorchjob/team-a/llama --platform kubernetes",
)
@jobs.command("describe")
@click.argument("job", shell_complete=job_names)
@job_options()
@watch_option
@output_option(*LISTS)
def describe_job(*, job: str, watch: bool, output: str, **values: Any) -> None:
    """Show details of a job.

    Shows its attempts with their nodes and the reason why each ended, the duration of each restart,
    its logs and its events.
    """
    where = taken(values)
    show(lambda: _read_one(job, where), lambda details: _describe(details, output), watch=watch)


@examples(
    "holdfast jobs cancel llama",
    "holdfast jobs cancel llama --dry-run",
    "holdfast jobs cancel llama --yes",
)
@jobs.command("cancel")
@click.argument("job", shell_complete=job_names)
@job_options()
@yes_option
@dry_run_option
@output_option(*RESULTS)
def cancel_job(*, job: str, yes: bool, dry_run: bool, output: str, **values: Any) -> int:
    """Cancel a job on this machine.

    Its ranks get SIGTERM, and SIGKILL after the grace period. For a job of a cluster, the command
    to cancel it is printed instead.
    """

    def confirm(status: JobStatus) -> None:
        if not dry_run:
            question = f"Cancel {job} ({status.phase}, attempt {status.attempt})?"
            confirm_or_abort(question, yes=yes)
            return
        if is_document(output):
            print_document({"job": job, "cancel_requested": False}, output)
        else:
            click.echo(f"{job}: would be cancelled in attempt {status.attempt}")
        raise click.exceptions.Exit(ExitCode.OK)

    with open_jobs(taken(values)) as known:
        status = known.cancel(job, confirm)
    if is_document(output):
        print_document({"job": job, "cancel_requested": True}, output)
    else:
        grace = format_duration(status.grace)
        click.echo(f"{job}: cancellation requested; ranks get {grace} to exit")
    return ExitCode.OK


def _read_one(job: str, where: Where) -> JobDetails:
    with open_jobs(where) as known:
        return known.describe(job)


def _read(known: Jobs, selection: Selection) -> tuple[Sequence[JobStatus], str]:
    jobs = known.jobs()
    empty = "No job matches." if jobs else known.none_yet
    chosen = selected(jobs, _FIELDS, selection, SystemClock().now())
    return known.with_steps(chosen, _STEPS_LIMIT), empty


def _print(
    statuses: Sequence[JobStatus], none_yet: str, output: str, *, with_ids: bool, headers: bool
) -> None:
    now = SystemClock().now()
    has_clusters = any(job.cluster for job in statuses)
    columns: list[Column[JobStatus]] = [
        Column(title="job", cell=lambda job: job.ref if output == OutputFormat.NAME else job.name),
        Column(title="id", cell=lambda job: job.id, wide=not (with_ids or has_clusters), drop=1),
        Column(title="cluster", cell=lambda job: job.cluster, wide=not has_clusters, drop=2),
        Column(title="phase", cell=lambda job: job.phase),
        Column(title="nodes", cell=lambda job: job.nodes, drop=4),
        Column(title="attempt", cell=lambda job: job.attempt, drop=5),
        Column(title="step", cell=lambda job: job.step, drop=6),
        Column(
            title="hw retries",
            cell=lambda job: f"{job.hardware_retries}/{job.max_retries}",
            drop=7,
        ),
        Column(
            title="app retries",
            cell=lambda job: f"{job.app_retries}/{job.max_app_retries}",
            drop=8,
        ),
        Column(title="for", cell=lambda job: age(job.phase_since, now), drop=3),
        Column(title="reason", cell=lambda job: job.reason, whole=True),
        Column(title="steps/s", cell=_rate, wide=True),
        Column(title="started", cell=lambda job: f"{age(job.started_at, now)} ago", wide=True),
        Column(title="command", cell=lambda job: job.command, wide=True),
        Column(title="directory", cell=lambda job: job.directory, wide=True),
    ]
    print_rows(statuses, columns, output=output, empty=none_yet, headers=headers)


def _describe(details: JobDetails, output: str) -> None:
    if is_document(output):
        reported = [one.plain() for one in details.reported]
        more = {"ranks": to_plain(details.ranks), "events": reported}
        print_document({**to_plain(details.status), **more}, output)
        return
    now = SystemClock().now()
    job = details.status
    print_details(_details(job, now))
    columns: list[Column[Attempt]] = [
        Column(title="attempt", cell=lambda one: one.attempt),
        Column(title="started", cell=lambda one: f"{age(one.started_at, now)} ago"),
        Column(title="lasted", cell=_lasted, drop=1),
        Column(title="steps", cell=_steps, drop=2),
        Column(title="lost", cell=lambda one: one.lost_steps, drop=3),
        Column(title="failure", cell=lambda one: one.kind, whole=True),
        Column(title="reason", cell=lambda one: one.reason, whole=True),
    ]
    print_section("Attempts", job.attempts, columns, output=output)
    print_lines("Reason", [(_name(one), _why(one)) for one in job.attempts if one.kind])
    print_lines("Restart durations", list(_restarts(job)))
    print_lines("Nodes", [(_name(one), ", ".join(one.placement)) for one in job.attempts])
    ranks: list[Column[RankStatus]] = [
        Column(title="rank", cell=lambda one: one.rank),
        Column(title="node", cell=lambda one: one.node),
        Column(title="name", cell=lambda one: one.name),
        Column(title="state", cell=lambda one: one.state),
        Column(title="detail", cell=lambda one: one.detail, minor=True),
    ]
    print_section("Ranks", details.ranks, ranks, output=output)
    print_lines("Events", [_event_line(one, job.started_at) for one in details.reported])


def _details(job: JobStatus, now: datetime) -> Iterator[tuple[str, object]]:
    yield "Job", job.name
    if job.id:
        yield "ID", job.id
    if job.cluster:
        yield "Cluster", job.cluster
    if job.command:
        yield "Command", job.command
    yield "Phase", job.phase
    yield "Since", f"{age(job.phase_since, now)} ago"
    yield "Reason", job.reason or ("cancellation requested" if job.cancel_requested else "")
    if job.phase == INTERRUPTED and job.cluster:
        yield "To resume", "start holdfast api again"
    elif job.phase == INTERRUPTED:
        again = f"holdfast run --name {job.name} --resume --nodes {job.nodes} -- {job.command}"
        yield "To resume", again
    yield "Started", f"{age(job.started_at, now)} ago"
    yield "Nodes", job.nodes
    yield "Attempt", job.attempt
    yield "Step", job.step
    if job.steps_per_second is not None:
        yield "Step rate", f"{_rate(job)} steps/s"
    if job.stragglers:
        yield "Stragglers", job.stragglers
    yield (
        "Retries used",
        (
            f"{job.hardware_retries} of {job.max_retries} for hardware, "
            f"{job.app_retries} of {job.max_app_retries} for the application"
        ),
    )
    if job.directory:
        yield "Checkpoints", job.checkpoint_dir
        yield "Logs", f"{job.directory}/logs/attempt-N/rank-N.log"


def _rate(job: JobStatus) -> str:
    return "" if job.steps_per_second is None else f"{job.steps_per_second:.3g}"


def _restarts(job: JobStatus) -> Iterator[tuple[str, str]]:
    """Yield each failed attempt with the duration of its restart."""
    for before, one in zip(job.attempts, job.attempts[1:], strict=False):
        if before.kind:
            yield _name(one), recovery(before.stopped_in, one.waited, one.started_in)


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


def _event_line(one: JobEvent, since: datetime) -> tuple[str, str]:
    return f"{(one.at - since).total_seconds():.2f}s", one.message
