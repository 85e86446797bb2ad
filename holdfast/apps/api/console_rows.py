"""Rows of nodes, jobs and incidents for the console's pages, without empty values."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from holdfast.api.console_source import Json
from holdfast.apps.views.jobs import JobStatus
from holdfast.apps.views.nodes import NodeStatus, check_waits, replacement_count
from holdfast.apps.views.overview import FleetSnapshot
from holdfast.decisions.alert_rules import RULES
from holdfast.decisions.alerts import Alert, is_evaluated
from holdfast.decisions.attention import Attention
from holdfast.decisions.planned_work import is_planned
from holdfast.kit.serial import to_plain
from holdfast.model.incidents import Incident
from holdfast.model.nodes import Phase


class NodeAppearance(StrEnum):
    """Displayed state of a node."""

    HEALTHY = "healthy"
    WARNING = "warning"
    """It has a fault and still accepts jobs."""

    FAULTY = "faulty"
    CHECKING = "checking"
    CLOSED = "closed"
    """Made unschedulable by a person or the scheduler, not by Holdfast."""

    PLANNED = "planned"
    """Out of service for work that a person or a schedule requested; nothing is wrong with it."""

    JOINING = "joining"
    REBOOTING = "rebooting"
    REPLACING = "replacing"


_APPEARANCES: Final = {
    Phase.SCHEDULABLE: NodeAppearance.HEALTHY,
    Phase.QUARANTINED: NodeAppearance.FAULTY,
    Phase.DRAINING: NodeAppearance.FAULTY,
    Phase.CHECKING: NodeAppearance.CHECKING,
    Phase.JOINING: NodeAppearance.JOINING,
    Phase.REBOOTING: NodeAppearance.REBOOTING,
    Phase.REPLACING: NodeAppearance.REPLACING,
}


_REPAIRS: Final = (NodeAppearance.FAULTY, NodeAppearance.REBOOTING, NodeAppearance.REPLACING)


def node_key(fleet: str, name: str) -> str:
    """State to display for the row of a node."""
    return f"{fleet} {name}"


def node_row(node: NodeStatus, jobs: Mapping[str, str]) -> Json:
    """Row of a node.

    Args:
        node: node as the CLI shows it.
        jobs: ``node -> job`` where jobs report their nodes.

    """
    appearance, remediation = _APPEARANCES[node.phase], node.remediation
    if appearance is NodeAppearance.HEALTHY and (node.closed or node.conditions):
        appearance = NodeAppearance.CLOSED if node.closed else NodeAppearance.WARNING
    if node.is_planned and appearance in _REPAIRS:
        appearance = NodeAppearance.PLANNED
    return _row(
        name=node.name,
        fleet=node.run,
        group=node.group,
        type=node.instance_type,
        # Names usually contain the ID of the machine, and thousands of rows are sent.
        machine="" if node.provider_id.rpartition("/")[2] in node.name else node.provider_id,
        look=appearance.value,
        since=to_plain(node.phase_since),
        reason=remediation.reason
        if remediation is not None
        else next(iter(node.conditions.values()), node.closed),
        remedy=remediation.remedy.value if remediation is not None else "",
        incident=remediation.incident_id if remediation is not None else "",
        job=node.job or jobs.get(node.name, ""),
        rank=node.rank,
        pause_reason=node.pause_reason,
        requested=node.request.verb.value if node.request is not None else "",
        waits=check_waits(node),
    )


def node_details(node: NodeStatus, incidents: Iterable[Incident]) -> Json:
    """Details of a node, in addition to its row."""
    known = {one.id: one for one in incidents}
    reported = [known[name] for name in node.incidents if name in known]
    return {**to_plain(node), "incidents": [to_plain(one) for one in reported]}


def job_row(job: JobStatus, fleet: str) -> Json:
    """Row of a job of a fleet, without its attempts."""
    return _row(
        name=job.ref,
        fleet=fleet,
        is_active=job.is_active,
        phase=job.phase,
        since=to_plain(job.phase_since),
        started_at=to_plain(job.started_at),
        reason=job.reason,
        nodes=job.nodes,
        attempt=job.attempt,
        step=job.step,
        hardware_retries=job.hardware_retries,
        max_retries=job.max_retries,
        app_retries=job.app_retries,
        max_app_retries=job.max_app_retries,
    )


def incident_row(incident: Incident, fleet: str, state: str) -> Json:
    """Row of an incident; ``state`` is the phase of its node, or the outcome."""
    return {
        **to_plain(incident),
        "fleet": fleet,
        "state": state,
        "is_planned": is_planned(incident.reason),
    }


def attention_row(item: Attention, more: int) -> Json:
    """Row of an item that needs a person; ``more`` further ones are like it."""
    return _row(**to_plain(item), more=max(0, more) or None)


SUBJECTS: Final = 20
"""Maximum number of nodes or jobs that the row of an alert names."""

RULE_ROWS: Final = [
    {
        "name": rule.name,
        "severity": rule.severity.value,
        "lasts": rule.lasts.total_seconds(),
        "description": rule.description,
        "is_evaluated": is_evaluated(rule),
    }
    for rule in RULES
]
"""All alert rules, also those that only Prometheus evaluates."""


def alert_row(alert: Alert) -> Json:
    """Row of an alert whose condition holds."""
    return _row(
        name=alert.rule.name,
        severity=alert.rule.severity.value,
        fleet=alert.fleet,
        state=alert.state.value,
        since=to_plain(alert.since),
        nodes=alert.nodes[:SUBJECTS],
        jobs=alert.jobs[:SUBJECTS],
        all=max(1, len(alert.nodes) + len(alert.jobs)),
    )


def fleet_row(fleet: FleetSnapshot, now: datetime) -> Json:
    """Row of a fleet."""
    breaker, replaced = fleet.breaker, replacement_count(fleet.nodes, now)
    is_tripped = breaker.tripped_at is not None
    return _row(
        name=fleet.name,
        is_active=fleet.is_active,
        stopped_at=to_plain(breaker.tripped_at),
        stopped_for=breaker.reason if is_tripped else "",
        replaced_last_hour=replaced.last_hour,
        replaced_last_day=replaced.last_day,
    )


def _row(**values: Any) -> Json:
    """Non-empty values: thousands of rows are sent."""
    return {name: value for name, value in values.items() if value not in ("", None)}
