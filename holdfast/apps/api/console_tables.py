"""Rows of all pages of the console, from one snapshot of all fleets and jobs."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
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
from holdfast.apps.views.goodput import goodput, goodput_details
from holdfast.apps.views.jobs import JobDetails, JobStatus
from holdfast.apps.views.overview import FleetSnapshot, attention, incident_state, watched
from holdfast.decisions.alerts import current_alerts
from holdfast.decisions.attention import Attention, Topic, needs_attention
from holdfast.decisions.incident_steps import next_steps
from holdfast.kit.serial import to_plain

INCIDENTS: Final = 1000
"""Maximum number of incidents shown, newest first; all are sent to every page that opens."""

RANKS: Final = 1000
"""Maximum number of ranks of a job that are sent every few seconds."""

EVENTS: Final = 1000
"""Maximum number of events of a job that are sent, newest last."""

URGENT: Final = 50
"""Maximum number of items that need a person on the first page, the most urgent first."""

SAME_TOPIC: Final = 3
"""Maximum number of these of one topic and fleet."""


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
        "attention": _urgent_rows(urgent),
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


def _urgent_rows(urgent: Iterable[Attention]) -> dict[str, Json]:
    """Rows of the first items of each topic of a fleet; the last of them counts the others.

    Otherwise hundreds of repairs that wait would hide an overdue checkpoint.
    """
    groups = defaultdict[tuple[str, Topic], list[Attention]](list)
    for one in urgent:
        groups[one.fleet, one.topic].append(one)
    rows = [
        attention_row(one, len(group) - SAME_TOPIC if number == SAME_TOPIC else 0)
        for group in groups.values()
        for number, one in enumerate(group[:SAME_TOPIC], 1)
    ]
    return {f"{number:04}": row for number, row in enumerate(rows[:URGENT])}


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


def job_details(document: JobDetails, fleet: str, now: datetime) -> Json:
    """Details of a job of a fleet; ``all_ranks`` is the number of its ranks.

    The placement of past attempts is left out: of a large job, it has thousands of names each.
    """
    status = document.status
    found = goodput(status, now)
    brief = replace(
        status,
        placement=status.placement[:RANKS],
        attempts=tuple(replace(one, placement=()) for one in status.attempts),
    )
    return {
        **to_plain(brief),
        "fleet": fleet,
        "ranks": to_plain(document.ranks[:RANKS]),
        "all_ranks": len(document.ranks or status.placement),
        "events": [one.plain() for one in document.reported[-EVENTS:]],
        "goodput": goodput_details([found]) if found is not None else None,
    }


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
