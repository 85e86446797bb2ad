"""``holdfast nodes``: lists nodes, and imports its other commands when they are called."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, NamedTuple

import click

from holdfast.apps.cli.help import FullHelpGroup, examples
from holdfast.apps.cli.nodes.names import RESET_BREAKER
from holdfast.apps.cli.output import (
    NAMED_LISTS,
    Column,
    OutputFormat,
    age,
    output_option,
    print_rows,
)
from holdfast.apps.cli.selecting import select_options, taken_selection
from holdfast.apps.cli.watch import show, watch_option
from holdfast.apps.cli.where import taken, where_options
from holdfast.apps.clock import SystemClock
from holdfast.apps.target import TargetPlatform, Where, open_fleets
from holdfast.apps.views.nodes import (
    NodeStatus,
    phase_text,
    replacement_count,
)
from holdfast.apps.views.selection import RowFields, Selection, selected
from holdfast.model.nodes import Breaker, Phase

_NOTHING: Final = (
    "No run is active. Start one with: holdfast run -- COMMAND. List ended runs with: "
    "holdfast nodes list --all"
)
_NO_AGENT: Final = "No nodes: no agent of this cluster has reported yet."


_STATES: Final = (*(phase.value for phase in Phase), "closed", "planned", "warning")
_FIELDS: Final = RowFields[NodeStatus](
    states=lambda node: tuple(_states(node)),
    since=lambda node: node.phase_since,
    reason=lambda node: " ".join([_fault(node), *node.conditions.values()]),
    jobs=lambda node: node.job.split(","),
    labels={
        "name": lambda node: node.name,
        "group": lambda node: node.group,
        "type": lambda node: node.instance_type,
        "run": lambda node: node.run,
    },
)


class _Listing(NamedTuple):
    """Snapshot of the nodes to list."""

    nodes: Sequence[NodeStatus]
    is_selected: bool
    """Whether a selection may have left out nodes."""

    breakers: dict[str, Breaker]
    """``run -> open circuit breaker``."""

    shows_runs: bool

    def without_heartbeats(self) -> "_Listing":
        return self._replace(nodes=[replace(node, heartbeat_at=None) for node in self.nodes])


_REQUESTS: Final = "holdfast.apps.cli.nodes.requests"
_MODULES: Final = {
    **dict.fromkeys(
        ("reboot", "replace", "check", "release", "hold", "unhold", "reset-breaker"), _REQUESTS
    ),
    "describe": "holdfast.apps.cli.nodes.describe",
    "shell": "holdfast.apps.cli.nodes.shell",
}
"""Modules of commands that lists need not import."""


@click.group(cls=FullHelpGroup, modules=_MODULES)
def nodes() -> None:
    """List, describe, reboot or replace nodes.

    NODE is the name or instance ID of a node, a unique prefix of either, or the rank of the job on
    it: 0 is the node of rank 0.
    """


@examples(
    "holdfast nodes list --watch",
    "holdfast nodes list --platform kubernetes --output wide",
    "holdfast nodes list --state quarantined,draining --sort-by since",
    "holdfast nodes list -l group=gpu --output name",
    "holdfast nodes list --all --output yaml",
)
@nodes.command("list")
@where_options("Show only this run, including ended runs.")
@click.option("--all", "ended", is_flag=True, help="Include nodes of runs that have ended.")
@select_options(_STATES, tuple(_FIELDS.labels))
@watch_option
@output_option(*NAMED_LISTS)
def list_nodes(*, ended: bool, watch: bool, output: str, no_headers: bool, **values: Any) -> None:
    """List nodes of active runs or of a cluster."""
    selection = taken_selection(values)
    where = taken(values)
    brief = output in (OutputFormat.TABLE, OutputFormat.NAME)  # shows no heartbeats, no incidents
    show(
        lambda: _read(where, selection, ended=ended, brief=brief),
        lambda listing: _print(listing, output, where, headers=not no_headers),
        watch=watch,
        essence=_Listing.without_heartbeats,
    )


def _read(where: Where, selection: Selection, *, ended: bool, brief: bool) -> _Listing:
    now = SystemClock().now()
    with open_fleets(where, ended=ended) as known:
        nodes = [node for one in known for node in one.nodes(brief=brief)]
        breakers = {one.name: one.breaker() for one in known if one.is_active}
        return _Listing(
            nodes=selected(nodes, _FIELDS, selection, now),
            is_selected=selection != Selection(),
            breakers={name: one for name, one in breakers.items() if one.tripped_at is not None},
            shows_runs=len(known) > 1 or not all(one.is_active for one in known),
        )


def _print(listing: _Listing, output: str, where: Where, *, headers: bool) -> None:
    now = SystemClock().now()
    columns: list[Column[NodeStatus]] = [
        Column(title="node", cell=lambda node: node.name),
        Column(title="phase", cell=_phase),
        Column(title="health", cell=lambda node: node.health_status, whole=True),
        Column(title="rank/job", cell=_rank, drop=1),
        Column(title="fault", cell=_fault, whole=True),
        Column(title="for", cell=lambda node: age(node.phase_since, now), drop=2),
        Column(title="run", cell=run_text, wide=not listing.shows_runs, drop=3),
        Column(title="machine", cell=lambda node: node.provider_id, wide=True),
        Column(title="boot", cell=lambda node: node.boot_id, wide=True),
        Column(title="deep check", cell=lambda node: node.deep_check_status, wide=True),
        Column(title="heartbeat", cell=lambda node: age(node.heartbeat_at, now), wide=True),
    ]
    empty = _nothing() if where.place is TargetPlatform.LOCAL else _NO_AGENT
    if listing.is_selected:
        empty = "No node matches."
    print_rows(listing.nodes, columns, output=output, empty=empty, headers=headers)
    for line in _replacements(listing.nodes, now):
        click.echo(line, err=True)
    for run, breaker in listing.breakers.items():
        click.echo(
            f"Circuit breaker open, all repairs of {run} paused for "
            f"{age(breaker.tripped_at, now)}: {breaker.reason}. "
            f"Inspect the nodes, then run: {RESET_BREAKER}{_options_of(where, run)}",
            err=True,
        )


def _replacements(nodes: Sequence[NodeStatus], now: datetime) -> Iterator[str]:
    """Yield the number of recent automatic replacements of each run that had some."""
    for run in dict.fromkeys(node.run for node in nodes):
        count = replacement_count((node for node in nodes if node.run == run), now)
        if count.last_day:
            yield (
                f"Automatic replacements of {run}: {count.last_hour} in the last hour, "
                f"{count.last_day} in 24h."
            )


def _nothing() -> str:
    """Return the message for a machine without an active run or cluster."""
    from holdfast.adapters.local.layout import default_home, runs  # noqa: PLC0415 - of one platform
    from holdfast.adapters.local.lock import is_held  # noqa: PLC0415 - as above

    clusters = [run.name for run in runs(default_home()) if run.is_cluster and not is_held(run)]
    if not clusters:
        return _NOTHING
    return (
        f"No process manages the cluster {', '.join(clusters)}: start holdfast api again. See the "
        "last state of its nodes with: holdfast nodes list --all"
    )


def _options_of(where: Where, run: str) -> str:
    return f" --run {run}" if where.place is TargetPlatform.LOCAL else where.as_options()


def _states(node: NodeStatus) -> Iterator[str]:
    is_closed = node.closed and node.phase is Phase.SCHEDULABLE
    yield "closed" if is_closed else node.phase.value
    if node.is_planned:
        yield "planned"
    if node.conditions and node.phase is Phase.SCHEDULABLE:
        yield "warning"


def run_text(node: NodeStatus) -> str:
    """Return the name of the run of a node, and whether it has ended."""
    return node.run if node.is_active else f"{node.run} (ended)"


def _phase(node: NodeStatus) -> str:
    return "closed" if node.closed and node.phase is Phase.SCHEDULABLE else phase_text(node)


def _rank(node: NodeStatus) -> str:
    return node.job if node.rank is None else f"{node.rank}/{node.job}"


def _fault(node: NodeStatus) -> str:
    drill = "" if node.drill_until is None else f"drill until {node.drill_until:%H:%M:%SZ}"
    remediation = node.remediation
    fault = f"{remediation.reason} → {remediation.remedy}" if remediation else node.closed
    return "; ".join(text for text in (drill, fault) if text)
