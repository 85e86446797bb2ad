"""Retention of incidents."""

from collections.abc import Iterable
from datetime import datetime

from holdfast.decisions.policy import RemediationPolicy
from holdfast.model.incidents import Incident


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
