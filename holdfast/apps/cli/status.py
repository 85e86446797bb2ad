"""``holdfast status``: one screen with what needs a person, the nodes and the jobs."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click

from holdfast.apps.cli.help import examples
from holdfast.apps.cli.output import (
    RESULTS,
    Column,
    age,
    echo_colored,
    is_document,
    output_option,
    print_details,
    print_document,
    print_section,
    printable,
)
from holdfast.apps.cli.watch import show, watch_option
from holdfast.apps.cli.where import taken, where_options
from holdfast.apps.clock import SystemClock
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.target import Where, open_fleets, open_jobs
from holdfast.apps.views.jobs import JobStatus
from holdfast.apps.views.nodes import NO_RUN, phase_text, replacement_count
from holdfast.apps.views.overview import FleetSnapshot, attention, snapshot
from holdfast.decisions.attention import Attention
from holdfast.kit.serial import to_plain
from holdfast.model.errors import BackendError
from holdfast.model.nodes import Phase
from holdfast.model.sagemaker import EventLevel


@dataclass(frozen=True, slots=True, kw_only=True)
class _Status:
    """What the screen shows."""

    attention: list[Attention]
    fleets: list[FleetSnapshot]
    jobs: list[JobStatus]
    jobs_error: str
    """Why the jobs cannot be read; empty if they can."""

    at: datetime

    def essence(self) -> object:
        """Return what makes another output worth printing: not the durations."""
        topics = [(one.topic, one.fleet, one.node, one.job) for one in self.attention]
        nodes = [(node.name, node.phase) for one in self.fleets for node in one.nodes]
        return topics, nodes, [(job.ref, job.phase, job.attempt) for job in self.jobs]

    @property
    def exit_code(self) -> ExitCode:
        """Return the exit code for scripts."""
        if self.jobs_error:
            return ExitCode.PARTLY_DONE
        return ExitCode.NEEDS_ATTENTION if self.attention else ExitCode.OK


@examples(
    "holdfast status",
    "holdfast status --platform kubernetes --watch",
    "holdfast status --platform slurm --output json",
)
@click.command("status")
@where_options("Show only this run.  [default: all runs]")
@watch_option
@output_option(*RESULTS)
def status(*, watch: bool, output: str, **values: Any) -> int:
    """Show what needs attention, then nodes by state and jobs.

    Exits with 5 if something needs attention, with 0 if nothing does, and with 3 if jobs cannot be
    read.
    """
    where = taken(values)
    shown = show(
        lambda: _read(where),
        lambda found: _print(found, output),
        watch=watch,
        essence=_Status.essence,
    )
    return shown.exit_code


def _read(where: Where) -> _Status:
    now = SystemClock().now()
    with open_fleets(where, ended=True) as known:
        fleets = [snapshot(one) for one in known]
    jobs, error = _jobs(where)
    if where.run is not None:
        jobs = [job for job in jobs if where.run in (job.cluster, job.name)]
    return _Status(
        attention=attention(fleets, jobs, now),
        fleets=[one for one in fleets if one.is_active],
        jobs=[job for job in jobs if job.is_active],
        jobs_error=error,
        at=now,
    )


def _jobs(where: Where) -> tuple[list[JobStatus], str]:
    """Return the jobs, and why they cannot be read: nodes are shown all the same."""
    try:
        with open_jobs(where.in_all_namespaces()) as known:
            return known.jobs(), ""
    except BackendError as error:
        return [], str(error)


def _print(found: _Status, output: str) -> None:
    if found.jobs_error:
        click.echo(f"holdfast: jobs cannot be read: {found.jobs_error}", err=True)
    if is_document(output):
        print_document(_document(found), output)
        return
    _print_attention(found.attention)
    if not found.fleets:
        click.echo(f"\n{NO_RUN[0].upper()}{NO_RUN[1:]}")
        return
    click.echo("\nNodes")
    print_details(_nodes(found.fleets, found.at))
    print_section("Jobs", found.jobs, _job_columns(found.at), output=output)


def _print_attention(items: Sequence[Attention]) -> None:
    if not items:
        click.echo("Nothing needs attention.")
        return
    click.echo(f"Needs attention ({len(items)})")
    for one in items:
        color = "blue" if one.level is EventLevel.INFO else "red"
        echo_colored(f"{one.topic.upper()}", color, f"  {printable(one.what)}")
        click.echo(f"  → {one.next}")


def _nodes(fleets: Sequence[FleetSnapshot], now: datetime) -> Iterator[tuple[str, object]]:
    """Yield each fleet with the number of its nodes in each state."""
    for fleet in fleets:
        counts = Counter(
            "closed" if node.closed and node.phase is Phase.SCHEDULABLE else phase_text(node)
            for node in fleet.nodes
        )
        states = ", ".join(f"{count} {state}" for state, count in counts.most_common())
        replaced = replacement_count(fleet.nodes, now)
        text = f"{len(fleet.nodes)}: {states}" if fleet.nodes else "none"
        if replaced.last_day:
            text += (
                f"; automatically replaced: {replaced.last_hour} in the last hour, "
                f"{replaced.last_day} in 24h"
            )
        yield fleet.name, text


def _job_columns(now: datetime) -> list[Column[JobStatus]]:
    return [
        Column(title="job", cell=lambda job: job.ref),
        Column(title="phase", cell=lambda job: job.phase),
        Column(title="for", cell=lambda job: age(job.phase_since, now), drop=1),
        Column(title="nodes", cell=lambda job: job.nodes, drop=2),
        Column(title="attempt", cell=lambda job: job.attempt, drop=3),
        Column(title="step", cell=lambda job: job.step, drop=4),
        Column(title="reason", cell=lambda job: job.reason, whole=True),
    ]


def _document(found: _Status) -> dict[str, Any]:
    return {
        "at": to_plain(found.at),
        "attention": to_plain(found.attention),
        "fleets": [
            {
                "name": one.name,
                "breaker": to_plain(one.breaker),
                "nodes": dict(Counter(node.phase.value for node in one.nodes)),
                "replaced": to_plain(replacement_count(one.nodes, found.at)),
            }
            for one in found.fleets
        ],
        "jobs": [
            {
                name: to_plain(getattr(job, name))
                for name in (
                    "ref", "cluster", "phase", "phase_since", "reason", "nodes", "attempt", "step",
                    "placement",
                )
            }
            for job in found.jobs
        ],
        "jobs_error": found.jobs_error,
    }  # fmt: skip
