"""``holdfast nodes describe``: shows a node."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import click

from holdfast.apps.cli.help import examples
from holdfast.apps.cli.known_names import node_names
from holdfast.apps.cli.nodes.commands import run_text
from holdfast.apps.cli.output import (
    LISTS,
    Column,
    age,
    is_document,
    output_option,
    print_details,
    print_document,
    print_section,
)
from holdfast.apps.cli.watch import show, watch_option
from holdfast.apps.cli.where import taken, where_options
from holdfast.apps.clock import SystemClock
from holdfast.apps.target import Where, open_fleets
from holdfast.apps.views.nodes import NodeStatus, check_waits, find_node, phase_text
from holdfast.kit.serial import to_plain
from holdfast.kit.units import format_duration
from holdfast.model.hardware import Device, DeviceGroup
from holdfast.model.health import Fault, Finding
from holdfast.model.nodes import PastFault, Remediation


@examples(
    "holdfast nodes describe 0",
    "holdfast nodes describe i-0123 --output json",
    "holdfast nodes describe gpu-17 --platform slurm --watch",
)
@click.command("describe")
@click.argument("node", shell_complete=node_names)
@where_options("Name of the run of the node.")
@watch_option
@output_option(*LISTS)
def describe(*, node: str, watch: bool, output: str, **values: Any) -> None:
    """Show details of a node.

    Shows its state, its faults, the current repair and its history.
    """
    where = taken(values)
    show(
        lambda: _one(node, where),
        lambda found: _print(found, output),
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


def _print(found: _Described, output: str) -> None:
    node = found.status
    if is_document(output):
        print_document({**to_plain(node), "hardware": to_plain(found.hardware)}, output)
        return
    now = SystemClock().now()
    print_details(_details(node, now))
    evidence = _evidence_columns(now)
    faults: Sequence[Fault | Finding] = node.faults
    notices: Sequence[Fault | Finding] = node.notices
    print_section("Faults", faults, evidence, output=output)
    print_section("Notices without a repair", notices, evidence, output=output)
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
    yield "Run", run_text(node)
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
