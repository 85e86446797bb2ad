"""Requests of people and API clients; the engine treats them like faults."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from holdfast.model.health import Urgency
from holdfast.model.names import DeepCheck, Reason


class Verb(StrEnum):
    """Action requested for one node."""

    REBOOT = "reboot"
    REPLACE = "replace"
    DEEP_CHECK = "deep-check"
    RELEASE = "release"
    """Clear the node's faults and make it schedulable."""

    @property
    def usual_urgency(self) -> Urgency:
        """Urgency of a request that does not specify it: a check waits for jobs."""
        return Urgency.DEFERRED if self is Verb.DEEP_CHECK else Urgency.IMMEDIATE


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Request for one node: of a person, or of Holdfast itself."""

    id: str
    verb: Verb
    requested_at: datetime
    requested_by: str = ""
    urgency: Urgency = Urgency.IMMEDIATE
    """DEFERRED waits for the jobs of the node to end."""

    reason: Reason | None = None
    """Reason code of its incident; that of the verb if None."""

    checks: tuple[DeepCheck, ...] = ()
    """Kinds of a deep health check; those of the policy if empty."""

    why: str = ""
    """The evidence, for people."""

    job: str = ""
    """Job whose straggler led to the request; empty for all other requests."""
