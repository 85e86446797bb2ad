"""Rows of all pages of the console, from one snapshot of all fleets and jobs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from holdfast.api.console_source import Json, Tables, UnknownObject
from holdfast.apps.api.console_rows import (
    RULE_ROWS,
    alert_row,
    attention_row,
    fleet_row,
    incident_row,
    job_row,
    node_key,
    node_row,
)
from holdfast.apps.views.jobs import JobStatus
from holdfast.apps.views.overview import FleetSnapshot, attention, incident_state, watched
from holdfast.decisions.alerts import current_alerts
from holdfast.decisions.attention import needs_attention
from holdfast.decisions.incident_steps import next_steps

INCIDENTS: Final = 1000
"""Maximum number of incidents shown, newest first; all are sent to every page that opens."""

URGENT: Final = 50
"""Maximum number of items that need a person on the first page, the most urgent first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSnapshot:
    """Snapshot of all fleets and jobs."""

    fleets: Sequence[FleetSnapshot] = ()
    jobs: Sequence[JobStatus] = ()
    all_jobs_in: str = ""
    """Name of the fleet of all jobs; empty if each job belongs to its own run or cluster."""

    no_jobs: str = ""
    """Why jobs could not be read, or how to start one."""


def tables_of(seen: ConsoleSnapshot, now: datetime) -> Tables:
    """Rows of all pages; nodes only of fleets with an active controller."""
    jobs = jobs_by_node(seen.jobs)
    active = [one for one in seen.fleets if one.is_active]
    past = [case for one in seen.fleets for case in incident_rows(one)]
    past.sort(key=lambda row: row["detected_at"])
    fleets = watched(seen.fleets, seen.jobs)
    urgent = needs_attention(fleets, now)
    notes: dict[str, Json] = {
        "jobs": {"message": seen.no_jobs},
        "incidents": {"all": len(past)},
        "attention": {"all": len(urgent)},
        "alerts": {"rules": RULE_ROWS},
    }
    return {
        "attention": {
            f"{number:04}": attention_row(one) for number, one in enumerate(urgent[:URGENT])
        },
        "alerts": {
            f"{one.rule.name} {one.fleet}": alert_row(one) for one in current_alerts(fleets, now)
        },
        "fleets": {one.name: fleet_row(one, now) for one in active},
        "nodes": {
            node_key(node.run, node.name): node_row(node, jobs)
            for one in active
            for node in one.nodes
        },
        "jobs": {job.ref: job_row(job, fleet_of(job, seen)) for job in seen.jobs},
        "incidents": {f"{row['fleet']} {row['id']}": row for row in past[-INCIDENTS:]},
        "notes": notes,
    }


def incident_details(fleet: FleetSnapshot, seen: ConsoleSnapshot, name: str, now: datetime) -> Json:
    """Row of an incident of a fleet, and ``next``, what an operator does about it.

    Raises:
        UnknownObject: the fleet has no such incident.

    """
    for row, incident in zip(incident_rows(fleet), fleet.incidents, strict=True):
        if incident.id == name:
            fleet_state = incident_state(fleet, attention(seen.fleets, seen.jobs, now))
            return {**row, "next": list(next_steps(incident, fleet_state))}
    raise UnknownObject(f"there is no incident {name}")


def fleet_of(job: JobStatus, seen: ConsoleSnapshot) -> str:
    """Name of the fleet of a job."""
    return seen.all_jobs_in or job.cluster or job.name


def jobs_by_node(jobs: Iterable[JobStatus]) -> dict[str, str]:
    """``node -> job`` of active jobs."""
    return {node: job.ref for job in jobs if job.is_active for node in job.placement}


def incident_rows(fleet: FleetSnapshot) -> list[Json]:
    """Rows of all incidents of a fleet."""
    phases = {
        node.remediation.incident_id: node.phase.value
        for node in fleet.nodes
        if node.remediation is not None
    }
    rows = []
    for one in fleet.incidents:
        state = phases.get(one.id, "open") if fleet.is_active else "unfinished"
        if not one.node:
            state = "quarantined"
        elif one.released_at is not None:
            state = "released"
        elif one.vanished_at is not None:
            state = "vanished"
        rows.append(incident_row(one, fleet.name, state))
    return rows
