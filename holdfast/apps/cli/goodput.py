"""``holdfast goodput``: productive training time of jobs, and the time that failures cost."""

from datetime import timedelta
from typing import Any

import click

from holdfast.apps.cli.help import examples
from holdfast.apps.cli.known_names import job_names
from holdfast.apps.cli.output import (
    RESULTS,
    Column,
    is_document,
    output_option,
    print_document,
    print_rows,
    print_section,
)
from holdfast.apps.cli.watch import show, watch_option
from holdfast.apps.cli.where import job_options, taken
from holdfast.apps.clock import SystemClock
from holdfast.apps.target import Where, open_jobs
from holdfast.apps.views.goodput import Goodput, Loss, by_cause, goodput_details
from holdfast.apps.views.goodput import goodput as goodput_of
from holdfast.kit.units import format_duration


@examples(
    "holdfast goodput",
    "holdfast goodput llama",
    "holdfast goodput --platform kubernetes --all-namespaces --output json",
)
@click.command("goodput")
@click.argument("job", required=False, shell_complete=job_names)
@job_options()
@watch_option
@output_option(*RESULTS)
def goodput(*, job: str | None, watch: bool, output: str, **values: Any) -> None:
    """Show the productive time of jobs, and the time that failures cost.

    Goodput is the share of the time since the first attempt in which a job trained steps that it
    did not repeat. With JOB, each failure is listed with its cost.
    """
    where = taken(values)
    show(
        lambda: _read(job, where),
        lambda found: _print(*found, output, one=job is not None),
        watch=watch,
        essence=lambda found: [(one.job, one.losses) for one in found[0]],
    )


def _read(job: str | None, where: Where) -> tuple[list[Goodput], str]:
    with open_jobs(where) as known:
        jobs = known.jobs() if job is None else [known.describe(job).status]
        empty = known.none_yet if not jobs else "No job has started an attempt yet."
    now = SystemClock().now()
    return [found for one in jobs if (found := goodput_of(one, now)) is not None], empty


def _print(found: list[Goodput], empty: str, output: str, *, one: bool) -> None:
    if is_document(output):
        print_document(goodput_details(found), output)
        return
    columns: list[Column[Goodput]] = [
        Column(title="job", cell=lambda row: row.job),
        Column(title="goodput", cell=_share),
        Column(title="total", cell=lambda row: format_duration(row.whole), drop=1),
        Column(title="productive", cell=lambda row: format_duration(row.productive), drop=2),
        Column(title="repeated", cell=_repeated, drop=3),
        Column(title="stopping", cell=lambda row: format_duration(row.stopping), drop=6),
        Column(title="waiting", cell=lambda row: format_duration(row.waiting), drop=4),
        Column(title="starting", cell=lambda row: format_duration(row.starting), drop=5),
        Column(title="failures", cell=lambda row: len(row.losses), whole=True),
    ]
    print_rows(found, columns, output=output, empty=empty)
    losses = [loss for row in found for loss in row.losses]
    if one:
        _print_losses(losses, output)
    causes: list[Column[tuple[tuple[str, str], timedelta]]] = [
        Column(title="reason", cell=lambda row: row[0][1], whole=True),
        Column(title="kind", cell=lambda row: row[0][0]),
        Column(title="lost", cell=lambda row: format_duration(row[1])),
    ]
    print_section("Lost time by cause", list(by_cause(losses).items()), causes, output=output)


def _print_losses(losses: list[Loss], output: str) -> None:
    columns: list[Column[Loss]] = [
        Column(title="attempt", cell=lambda loss: loss.attempt),
        Column(title="reason", cell=lambda loss: loss.reason, whole=True),
        Column(title="node", cell=lambda loss: loss.node, drop=1),
        Column(title="stopping", cell=lambda loss: format_duration(loss.stopping), drop=5),
        Column(title="waiting", cell=lambda loss: format_duration(loss.waiting), drop=3),
        Column(title="starting", cell=lambda loss: format_duration(loss.starting), drop=4),
        Column(title="repeated", cell=lambda loss: format_duration(loss.redone), drop=2),
        Column(title="lost", cell=lambda loss: format_duration(loss.whole)),
    ]
    print_section("Failures", losses, columns, output=output)


def _share(row: Goodput) -> str:
    return "" if row.share is None else f"{row.share:.1%}"


def _repeated(row: Goodput) -> str:
    """Return the repeated training; a question mark where the job does not report all steps."""
    return format_duration(row.redone) + ("" if row.reports_steps else "?")
