"""Rows of nodes, jobs and incidents for the console's pages, without empty values."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

from holdfast.api.console_source import Json
from holdfast.apps.views.goodput import AttemptTimes, Goodput, by_cause
from holdfast.apps.views.jobs import JobStatus
from holdfast.apps.views.nodes import Fleet, NodeStatus, ReplacementCount, check_waits
from holdfast.kit.serial import to_plain
from holdfast.model.incidents import Incident
from holdfast.model.nodes import Breaker, Phase


class NodeAppearance(StrEnum):
    """Displayed state of a node."""

    HEALTHY = "healthy"
    WARNING = "warning"
    """It has a fault and still accepts jobs."""

    FAULTY = "faulty"
    CHECKING = "checking"
    CLOSED = "closed"
    """Made unschedulable by a person or the scheduler, not by Holdfast."""

    JOINING = "joining"
    REBOOTING = "rebooting"
    REPLACING = "replacing"


_LOOKS: Final = {
    Phase.SCHEDULABLE: NodeAppearance.HEALTHY,
    Phase.QUARANTINED: NodeAppearance.FAULTY,
    Phase.DRAINING: NodeAppearance.FAULTY,
    Phase.CHECKING: NodeAppearance.CHECKING,
    Phase.JOINING: NodeAppearance.JOINING,
    Phase.REBOOTING: NodeAppearance.REBOOTING,
    Phase.REPLACING: NodeAppearance.REPLACING,
}


def node_key(fleet: str, name: str) -> str:
    """State to display for the row of a node."""
    return f"{fleet} {name}"


def node_row(node: NodeStatus, jobs: Mapping[str, str]) -> Json:
    """Row of a node.

    Args:
        node: node as the CLI shows it.
        jobs: ``node -> job`` where jobs report their nodes.

    """
    look, remediation = _LOOKS[node.phase], node.remediation
    if look is NodeAppearance.HEALTHY and (node.closed or node.conditions):
        look = NodeAppearance.CLOSED if node.closed else NodeAppearance.WARNING
    return _row(
        name=node.name,
        fleet=node.run,
        group=node.group,
        type=node.instance_type,
        machine=node.provider_id,
        look=look.value,
        phase=node.phase.value,
        since=to_plain(node.phase_since),
        reason=remediation.reason
        if remediation is not None
        else next(iter(node.conditions.values()), node.closed),
        remedy=remediation.remedy.value if remediation is not None else "",
        incident=remediation.incident_id if remediation is not None else "",
        job=node.job or jobs.get(node.name, ""),
        rank=node.rank,
        held=node.held,
        requested=node.request.verb.value if node.request is not None else "",
        waits=check_waits(node),
    )


def node_story(node: NodeStatus, incidents: Iterable[Incident]) -> Json:
    """Details of a node, in addition to its row."""
    known = {one.id: one for one in incidents}
    reported = [known[name] for name in node.incidents if name in known]
    return {**to_plain(node), "incidents": [to_plain(one) for one in reported]}


def job_row(job: JobStatus) -> Json:
    """Row of a job, without its attempts."""
    return _row(
        name=job.ref,
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
    return {**to_plain(incident), "fleet": fleet, "state": state}


def fleet_row(fleet: Fleet, breaker: Breaker, replaced: ReplacementCount) -> Json:
    """Row of a fleet."""
    is_tripped = breaker.tripped_at is not None
    return _row(
        name=fleet.name,
        is_active=fleet.is_active,
        stopped_at=to_plain(breaker.tripped_at),
        stopped_for=breaker.reason if is_tripped else "",
        replaced_last_hour=replaced.last_hour,
        replaced_last_day=replaced.last_day,
    )


def goodput_story(found: Sequence[Goodput]) -> Json:
    """Job time by use, for each job and in total; durations in seconds."""
    parts = ("productive", "redone", "starting", "waiting", "stopping")
    jobs = [
        {
            "job": one.job,
            "begun_at": to_plain(one.begun_at),
            "ended_at": to_plain(one.ended_at),
            "share": one.share,
            "reports_steps": one.reports_steps,
            "parts": {name: _seconds(getattr(one, name)) for name in parts},
            "stays": [_stay(stay) for stay in one.attempts],
            "losses": [{**to_plain(loss), "whole": _seconds(loss.whole)} for loss in one.losses],
        }
        for one in found
    ]
    causes = by_cause([loss for one in found for loss in one.losses])
    return {
        "jobs": jobs,
        "causes": [
            {"kind": kind, "reason": reason, "seconds": _seconds(cost)}
            for (kind, reason), cost in causes.items()
        ],
    }


def _stay(stay: AttemptTimes) -> Json:
    times = (stay.begun_at, stay.running_at, stay.failed_at, stay.ended_at)
    return {
        "attempt": stay.attempt.attempt,
        "redone": _seconds(stay.redone),
        **dict(
            zip(
                ("begun_at", "running_at", "failed_at", "ended_at"),
                map(to_plain, times),
                strict=True,
            )
        ),
    }


def _seconds(duration: timedelta) -> float:
    return round(duration.total_seconds(), 3)


def _row(**values: Any) -> Json:
    """Non-empty values: thousands of rows are sent."""
    return {name: value for name, value in values.items() if value not in ("", None)}
