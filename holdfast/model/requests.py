"""What people and API clients ask for; the engine treats it like a fault."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from holdfast.model.health import Urgency


class Verb(StrEnum):
    """What may be asked of one node."""

    REBOOT = "reboot"
    REPLACE = "replace"
    DEEP_CHECK = "deep-check"
    RELEASE = "release"
    """Forget the node's faults and give it back to jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A wish of a person for one node."""

    id: str
    verb: Verb
    requested_at: datetime
    requested_by: str = ""
    urgency: Urgency = Urgency.IMMEDIATE
    """DEFERRED waits for the jobs of the node to end."""
