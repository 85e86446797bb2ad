"""View of the nodes of a run, from the run's state and the files of its machines."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from holdfast.adapters.local.faults import powered_processes
from holdfast.adapters.local.layout import NodeDir, RunDir
from holdfast.adapters.local.store import LocalStore
from holdfast.apps.views.nodes import JobRank, NodeStatus, node_status
from holdfast.kit.bounded_files import read_bounded
from holdfast.kit.serial import parse_value
from holdfast.model.hardware import DeviceGroup
from holdfast.model.incidents import Incident
from holdfast.model.nodes import NodeRecord, NodeView
from holdfast.model.report import REPORT_LIMIT, NodeReport


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNow:
    """Current state of a run."""

    directory: RunDir
    store: LocalStore
    is_active: bool
    ranks: Mapping[str, JobRank]
    """See ``Fleet.ranks``."""


def node_statuses(run: RunNow) -> list[NodeStatus]:
    """Return the status of all nodes of a run.

    Raises:
        BackendError: its state cannot be read.

    """
    requests = run.store.requests()
    holds = run.store.holds()
    incidents = run.store.list_incidents()
    groups = run.store.node_groups()
    return [
        _status(
            run,
            NodeView(
                name=name,
                provider_id=provider_id,
                record=record,
                group=groups.get(name, ""),
                boot_id=_text(run.directory.node(name).boot_id),
                request=requests.get(name),
                pause_reason=holds.get(name, ""),
                replaces=replaces,
            ),
            run.ranks.get(name),
            tuple(one.id for one in incidents if _concerns(one, name, record)),
        )
        for name, (provider_id, replaces, record) in run.store.nodes().items()
    ]


def node_hardware(directory: NodeDir) -> tuple[DeviceGroup, ...]:
    """Return the devices in the report of a machine that is powered on."""
    if "node" not in powered_processes(directory):
        return ()
    report = _report(directory, _text(directory.boot_id))
    return report.hardware if report is not None else ()


def _status(
    run: RunNow, view: NodeView, rank: JobRank | None, incidents: tuple[str, ...]
) -> NodeStatus:
    directory = run.directory.node(view.name)
    is_on = "node" in powered_processes(directory)
    report = _report(directory, view.boot_id) if is_on else None
    seen = replace(
        view,
        powered_on=is_on,
        heartbeat_at=_heartbeat_at(directory, view.boot_id),
        faults=report.faults if report is not None else (),
        drill_until=report.drill_until if report is not None else None,
    )
    notices = report.notices if report is not None else ()
    return replace(
        node_status(seen, run=run.directory.name, notices=notices, incidents=incidents),
        is_active=run.is_active,
        job=rank.job if rank is not None else "",
        rank=rank.rank if rank is not None else None,
    )


def _concerns(incident: Incident, node: str, record: NodeRecord) -> bool:
    is_present = record.remediation is not None and record.remediation.incident_id == incident.id
    return is_present or node in (incident.node, incident.successor)


def _report(directory: NodeDir, boot_id: str) -> NodeReport | None:
    """Return the agent's report of this boot; None before the first one, and if it is damaged."""
    try:
        report = parse_value(NodeReport, _text(directory.report))
    except ValueError:
        return None
    return report if report.boot_id == boot_id else None


def _heartbeat_at(directory: NodeDir, boot_id: str) -> datetime | None:
    """Return the time of the agent's last heartbeat in this boot; None before the first one."""
    if not boot_id or not _text(directory.heartbeat).startswith(boot_id):
        return None
    try:
        return datetime.fromtimestamp(directory.heartbeat.stat().st_mtime, UTC)
    except FileNotFoundError:
        return None


def _text(path: Path) -> str:
    """Content of a small file of a machine; empty if it is missing or cannot be used."""
    try:
        return read_bounded(path, REPORT_LIMIT).decode("utf-8", errors="replace").strip()
    except OSError:
        return ""
