"""Updates of an incident by the actions on its node."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from holdfast.decisions.policy import RemediationPolicy
from holdfast.model.actions import (
    NodeAction,
    Quarantine,
    Reassign,
    Reboot,
    Rejoin,
    Release,
    Replace,
    Retire,
    StartCheck,
)
from holdfast.model.health import Fault
from holdfast.model.incidents import AffectedJob, Incident
from holdfast.model.nodes import NodeView, Phase, Remediation


def opened(node: NodeView, remediation: Remediation, fault: Fault | None) -> Incident:
    """Return the incident of a remediation.

    ``fault`` is its cause; None if that is no longer known.
    """
    return Incident(
        id=remediation.incident_id,
        node=node.name,
        provider_id=node.provider_id,
        reason=remediation.reason,
        remedy=remediation.remedy,
        message=fault.message if fault is not None else "",
        detected_at=min(fault.since, remediation.opened_at)
        if fault is not None
        else remediation.opened_at,
        quarantined_at=remediation.opened_at,
    )


def advanced(incident: Incident, action: NodeAction, node: NodeView, now: datetime) -> Incident:
    """Return the incident after ``action`` is taken on ``node``.

    A repair that did not help does not count: the times of the next repair replace its times.
    """
    if (
        isinstance(action, Rejoin | StartCheck | Release)
        and node.provider_id != incident.provider_id
    ):
        incident = replace(incident, successor_id=node.provider_id)
    match action:
        case Quarantine() | Reassign():
            return replace(
                incident,
                reason=action.fault.reason,
                remedy=action.remedy,
                message=action.fault.message,
                repaired_at=None,
                checked_at=None,
                released_at=None,
                vanished_at=None,
                check_remarks="",
            )
        case Reboot():
            return replace(incident, remedy="reboot", drained_at=incident.drained_at or now)
        case Replace():
            return replace(incident, remedy="replace", drained_at=incident.drained_at or now)
        case StartCheck():
            return replace(
                incident,
                drained_at=incident.drained_at or now,
                repaired_at=_repaired(incident, now),
            )
        case Rejoin():
            return replace(incident, repaired_at=now)
        case Retire():
            return replace(incident, successor=action.successor)
        case Release():
            return _released(incident, action, node, now)
        case _:
            return incident


def _released(incident: Incident, action: Release, node: NodeView, now: datetime) -> Incident:
    return replace(
        incident,
        repaired_at=_repaired(incident, now),
        checked_at=now if action.checked else incident.checked_at,
        check_remarks=_remarks(node, action) or incident.check_remarks,
        released_at=now,
    )


def _remarks(node: NodeView, action: Release) -> str:
    check = action.check or (node.check if node.record.phase is Phase.CHECKING else None)
    return check.remarks if check is not None else ""


def vanished(incident: Incident, now: datetime) -> Incident:
    """Return the incident after its node disappeared; an ended incident is unchanged."""
    return incident if incident.ended_at is not None else replace(incident, vanished_at=now)


def _repaired(incident: Incident, now: datetime) -> datetime | None:
    """Return the time of the repair; that of a replacement is the first report of its agent."""
    return incident.repaired_at or (now if incident.successor else None)


def touched(incident: Incident, touch: AffectedJob) -> Incident:
    """Return the incident with its effect on a job; an entry of the same attempt is replaced."""
    others = tuple(
        one for one in incident.jobs if (one.job, one.attempt) != (touch.job, touch.attempt)
    )
    return replace(incident, jobs=(*others, touch))


def resumed(incident: Incident, job: str, now: datetime) -> Incident:
    """Return the incident after ``job`` runs again."""
    jobs = tuple(
        replace(one, resumed_at=now) if one.job == job and one.resumed_at is None else one
        for one in incident.jobs
    )
    return replace(incident, jobs=jobs)


def expired(
    incidents: Iterable[Incident], policy: RemediationPolicy, now: datetime
) -> tuple[str, ...]:
    """Return the IDs of the incidents to delete: those past their retention, and surplus ones.

    Surplus are the oldest beyond ``incidents_kept``. Open incidents never expire and do not count.
    """
    ended = sorted((one.ended_at, one.id) for one in incidents if one.ended_at is not None)
    surplus = max(0, len(ended) - policy.incidents_kept)
    return tuple(
        name
        for number, (ended_at, name) in enumerate(ended)
        if number < surplus or now - ended_at >= policy.incident_retention
    )
