"""What people and API clients ask for; the engine treats it like a fault."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from holdfast.model.health import Urgency
from holdfast.model.names import DeepCheck, Reason


class Verb(StrEnum):
    """What may be asked of one node."""

    REBOOT = "reboot"
    REPLACE = "replace"
    DEEP_CHECK = "deep-check"
    RELEASE = "release"
    """Forget the node's faults and give it back to jobs."""

    @property
    def usual_urgency(self) -> Urgency:
        """Urgency of a request that says nothing about it: a check waits for jobs."""
        return Urgency.DEFERRED if self is Verb.DEEP_CHECK else Urgency.IMMEDIATE


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A wish for one node: of a person, or of Holdfast itself."""

    id: str
    verb: Verb
    requested_at: datetime
    requested_by: str = ""
    urgency: Urgency = Urgency.IMMEDIATE
    """DEFERRED waits for the jobs of the node to end."""

    reason: Reason | None = None
    """What its incident is called; that of the verb if None."""

    checks: tuple[DeepCheck, ...] = ()
    """What a deep health check is to be made of; what the policy says if empty."""

    why: str = ""
    """The evidence, for people."""
