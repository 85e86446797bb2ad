"""The whole course of one fault, for people to read afterwards."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTouch:
    """What an incident meant for one job."""

    job: str
    attempt: int
    """The attempt that was stopped."""

    stopped_at: datetime
    resumed_at: datetime | None = None
    """When all ranks of the next attempt ran; None until then."""

    step: int | None = None
    """The last step that the stopped attempt had reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """From detection to release. A time is None until that point is reached."""

    id: str
    node: str
    provider_id: str
    reason: str
    remedy: str
    message: str = ""
    detected_at: datetime
    quarantined_at: datetime
    drained_at: datetime | None = None
    """When the repair could begin: no job was left on the node, or the deadline had passed."""

    repaired_at: datetime | None = None
    checked_at: datetime | None = None
    released_at: datetime | None = None
    vanished_at: datetime | None = None
    """When the node was found gone though nobody had replaced it: the incident ends with that."""

    successor: str = ""
    """The node that took over, if the machine was replaced."""

    successor_id: str = ""
    """``provider_id`` of the machine that came in place of the faulty one; empty before it did."""

    check_remarks: str = ""
    """What the deep health check did not run, and why."""

    @property
    def back(self) -> str:
        """Name of the node that is checked and released in the end."""
        return self.successor or self.node

    jobs: tuple[JobTouch, ...] = ()

    @property
    def ended_at(self) -> datetime | None:
        """When the incident was over; None while it is open."""
        return self.released_at or self.vanished_at
