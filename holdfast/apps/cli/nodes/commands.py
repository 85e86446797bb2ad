"""``holdfast nodes``: lists and describes nodes."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import click

from holdfast.apps.cli.help import FullHelpGroup, examples
from holdfast.apps.cli.known_names import node_names
from holdfast.apps.cli.nodes.names import RESET_BREAKER
from holdfast.apps.cli.output import (
    LISTS,
    NAMED_LISTS,
    Column,
    age,
    is_document,
    output_option,
    print_details,
    print_document,
    print_rows,
    print_section,
)
from holdfast.apps.cli.selecting import select_options, taken_selection
from holdfast.apps.cli.watch import show, watch_option
from holdfast.apps.cli.where import taken, where_options
from holdfast.apps.clock import SystemClock
from holdfast.apps.target import TargetPlatform, Where, open_fleets
from holdfast.apps.views.nodes import (
    NodeStatus,
    check_waits,
    find_node,
    phase_text,
    replacement_count,
)
from holdfast.apps.views.selection import RowFields, Selection, selected
from holdfast.kit.serial import to_plain
from holdfast.kit.units import format_duration
from holdfast.model.hardware import Device, DeviceGroup
from holdfast.model.health import Fault, Finding
from holdfast.model.nodes import Breaker, PastFault, Phase, Remediation

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


@dataclass(frozen=True, slots=True)
class _Listing:
    """Snapshot of the nodes to list."""

    nodes: Sequence[NodeStatus]
    is_selected: bool
    """Whether a selection may have left out nodes."""

    breakers: dict[str, Breaker]
    """``run -> open circuit breaker``."""

    shows_runs: bool

    def without_heartbeats(self) -> "_Listing":
        return dataclasses.replace(
            self, nodes=[dataclasses.replace(node, heartbeat_at=None) for node in self.nodes]
        )


_REQUESTS: Final = "holdfast.apps.cli.nodes.requests"
_MODULES: Final = {
    **dict.fromkeys(
        ("reboot", "replace", "check", "release", "hold", "unhold", "reset-breaker"), _REQUESTS
    ),
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
    show(
        lambda: _read(where, selection, ended=ended),
        lambda listing: _print(listing, output, where, headers=not no_headers),
        watch=watch,
        essence=_Listing.without_heartbeats,
    )


@examples(
    "holdfast nodes describe 0",
    "holdfast nodes describe i-0123 --output json",
    "holdfast nodes describe gpu-17 --platform slurm --watch",
)
@nodes.command("describe")
@click.argument("node", shell_complete=node_names)
@where_options("Name of the run of the node.")
@watch_option
@output_option(*LISTS)
def describe_node(*, node: str, watch: bool, output: str, **values: Any) -> None:
    """Show details of a node.

    Shows its state, its faults, the current repair and its history.
    """
    where = taken(values)
    show(
        lambda: _one(node, where),
        lambda found: _describe(found, output),
        watch=watch,
        essence=lambda found: dataclasses.replace(found.status, heartbeat_at=None),
    )


@dataclass(frozen=True, slots=True)
class _Described:
    """A node with its devices."""

    status: NodeStatus
    hardware: tuple[DeviceGroup, ...]


def _one(node: str, where: Where) -> _Described:
    with open_fleets(where, ended=True) as known:
        active = [one for one in known if one.is_active]
        owner, name = find_node(node, active if node.isdecimal() and where.run is None else known)
        status = next(one for one in owner.nodes() if one.name == name)
        return _Described(status, owner.hardware(name))


def _read(where: Where, selection: Selection, *, ended: bool) -> _Listing:
    now = SystemClock().now()
    with open_fleets(where, ended=ended) as known:
        breakers = {one.name: one.breaker() for one in known if one.is_active}
        return _Listing(
            nodes=selected(
                [node for one in known for node in one.nodes()], _FIELDS, selection, now
            ),
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
        Column(title="run", cell=_run, wide=not listing.shows_runs, drop=3),
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


def _run(node: NodeStatus) -> str:
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


def _describe(found: _Described, output: str) -> None:
    node = found.status
    if is_document(output):
        print_document({**to_plain(node), "hardware": to_plain(found.hardware)}, output)
        return
    now = SystemClock().now()
    print_details(_details(node, now))
    evidence = _evidence_columns(now)
    print_section("Faults", node.faults, evidence, output=output)
    print_section("Notices without a repair", node.notices, evidence, output=output)
    past: list[Column[PastFault]] = [
        Column(title="reason", cell=lambda past: past.reason, whole=True),
        Column(title="remedy", cell=lambda past: past.remedy),
        Column(title="ended", cell=lambda past: f"{age(past.closed_at, now)} ago"),
        Column(title="took", cell=lambda past: format_duration(past.closed_at - past.opened_at)),
    ]
    print_section("Previous repairs of this machine", node.history, past, output=output)
    for group in found.hardware:
        print_section(_heading(group, now), group.devices, _DEVICE_COLUMNS, output=output)


_DEVICE_COLUMNS: Final[list[Column[Device]]] = [
    Column(title="device", cell=lambda one: one.name),
    Column(title="model", cell=lambda one: one.model, drop=1),
    Column(
        title="readings",
        cell=lambda one: ", ".join(
            f"{name.replace('_', ' ')} {value}" for name, value in one.values.items()
        ),
        whole=True,
    ),
]


def _heading(group: DeviceGroup, now: datetime) -> str:
    """Return the heading of devices: their kind, versions, and the age of the reading."""
    versions = [f"{name} {version}" for name, version in group.versions.items()]
    problem = [f"later readings failed: {group.error}"] if group.error else []
    return ", ".join(
        [f"Devices: {group.kind}", *versions, f"read {age(group.read_at, now)} ago", *problem]
    )


def _details(node: NodeStatus, now: datetime) -> Iterator[tuple[str, object]]:
    yield "Node", node.name
    yield "Run", _run(node)
    yield "Machine", node.provider_id
    yield "Boot", node.boot_id
    yield "Replaces", node.replaces
    yield "Power", None if node.powered_on is None else "on" if node.powered_on else "off"
    yield "Phase", phase_text(node)
    yield "Since", f"{age(node.phase_since, now)} ago"
    yield "Health", node.health_status
    yield "Deep check", node.deep_check_status
    yield "Conditions", ", ".join(f"{name} ({why})" for name, why in node.conditions.items())
    yield "Job", node.job
    yield "Rank", node.rank
    yield "Heartbeat", f"{age(node.heartbeat_at, now)} ago" if node.heartbeat_at else None
    yield "Repair", _repair(node.remediation, now)
    yield (
        "Drill",
        "" if node.drill_until is None else f"until {node.drill_until:%Y-%m-%d %H:%M:%SZ}",
    )
    yield "Repairs paused", node.pause_reason
    yield "Closed", node.closed
    yield "Request", _request(node, now)
    yield "Incidents", ", ".join(node.incidents)


def _repair(remediation: Remediation | None, now: datetime) -> str:
    if remediation is None:
        return ""
    ordered = (
        f"ordered {age(remediation.ordered_at, now)} ago"
        if remediation.ordered_at
        else "not ordered yet"
    )
    return (
        f"{remediation.remedy} for {remediation.reason} ({remediation.urgency}), opened "
        f"{age(remediation.opened_at, now)} ago, {ordered}, incident {remediation.incident_id}"
    )


def _request(node: NodeStatus, now: datetime) -> str:
    request, waits = node.request, check_waits(node)
    if request is None:
        return ""
    return (
        f"{request.verb} ({request.urgency}) requested by {request.requested_by} "
        f"{age(request.requested_at, now)} ago{'; it ' if waits else ''}{waits}"
    )


def _evidence_columns(now: datetime) -> list[Column[Fault | Finding]]:
    return [
        Column(title="reason", cell=lambda one: one.reason, whole=True),
        Column(title="remedy", cell=lambda one: one.remedy),
        Column(title="severity", cell=lambda one: one.severity),
        Column(title="code", cell=lambda one: one.code, drop=3),
        Column(title="device", cell=lambda one: one.device, drop=2),
        Column(title="seen", cell=lambda one: f"{age(_seen(one), now)} ago", drop=1),
        Column(title="message", cell=lambda one: one.message, minor=True),
    ]


def _seen(evidence: Fault | Finding) -> datetime:
    return evidence.since if isinstance(evidence, Fault) else evidence.observed_at
