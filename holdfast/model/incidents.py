"""Timeline of one fault of a node or a checkpoint, for people to read afterwards."""

from dataclasses import dataclass
from datetime import datetime

from holdfast.model.set_aside import SetAside


@dataclass(frozen=True, slots=True, kw_only=True)
class AffectedJob:
    """Effect of an incident on one job."""

    job: str
    attempt: int
    """Attempt that was stopped."""

    stopped_at: datetime
    resumed_at: datetime | None = None
    """Time at which all ranks of the next attempt ran; None until then."""

    step: int | None = None
    """Last step that the stopped attempt reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """Timeline from detection to release. A time is None until that point is reached.

    Its subject is a node, or a checkpoint of a job. One of a checkpoint ends with the quarantine.
    """

    id: str
    node: str = ""
    """Node that is faulty; empty if the subject is a checkpoint."""

    provider_id: str = ""
    job: str = ""
    """Job whose checkpoint was moved; empty if the subject is a node."""

    checkpoint: SetAside | None = None
    """Evidence about the checkpoint; None if the subject is a node."""

    reason: str
    remedy: str
    message: str = ""
    detected_at: datetime
    quarantined_at: datetime
    drained_at: datetime | None = None
    """Time at which the repair could start: no job was left on the node, or the drain timed out."""

    repaired_at: datetime | None = None
    checked_at: datetime | None = None
    released_at: datetime | None = None
    vanished_at: datetime | None = None
    """Time at which the node was found gone although it was not replaced; this ends the
    incident."""

    successor: str = ""
    """Node that took over, if the machine was replaced."""

    successor_id: str = ""
    """``provider_id`` of the machine that replaced the faulty one; empty until then."""

    check_remarks: str = ""
    """Parts of the deep health check that were not run, and why."""

    @property
    def back(self) -> str:
        """Name of the node that is checked and released in the end."""
        return self.successor or self.node

    jobs: tuple[AffectedJob, ...] = ()

    @property
    def job_names(self) -> tuple[str, ...]:
        """Names of the affected jobs."""
        return (self.job,) if self.job else tuple(one.job for one in self.jobs)

    @property
    def subject(self) -> str:
        """Name of the node, or else of the checkpoint."""
        return self.node or (self.checkpoint.name if self.checkpoint is not None else "")

    @property
    def ended_at(self) -> datetime | None:
        """Time at which the incident ended; None while it is open."""
        if not self.node:
            return self.quarantined_at
        return self.released_at or self.vanished_at
