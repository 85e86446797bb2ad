"""Findings of detectors, and the faults that result from them."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final


class Severity(StrEnum):
    """Severity of a finding for the work on the node."""

    INFO = "info"
    WARNING = "warning"
    FATAL = "fatal"


class Remedy(StrEnum):
    """Smallest action that helps, from the mildest to the strongest."""

    NONE = "none"
    RESTART_APP = "restart-app"
    RESET_GPU = "reset-gpu"
    REBOOT = "reboot"
    REPLACE = "replace"

    @property
    def strength(self) -> int:
        """Rank in the order of the members; a stronger remedy includes every weaker one."""
        return _STRENGTHS[self]

    @property
    def touches_node(self) -> bool:
        """Whether the node itself needs the remedy, not only the application on it."""
        return self.strength >= Remedy.RESET_GPU.strength


_STRENGTHS: Final = {remedy: place for place, remedy in enumerate(Remedy)}


class Urgency(StrEnum):
    """When a remedy may start."""

    IMMEDIATE = "immediate"
    """The job is lost anyway: start now."""

    DEFERRED = "deferred"
    """The node still works: start after its jobs have ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Result of one detector for one sample."""

    family: str
    """Kind of evidence, e.g. ``xid``."""

    condition: str
    """Node condition that this finding sets to True, from ``model.names``."""

    reason: str
    """Stable PascalCase cause, from ``model.names``."""

    severity: Severity
    """Severity for the work on the node."""

    remedy: Remedy
    """Smallest action that helps."""

    message: str
    """Evidence, e.g. the kernel's line without its prefix."""

    observed_at: datetime
    """Time of the reading."""

    code: int | None = None
    """Number in the family, e.g. the XID; None where the family has none."""

    device: str = ""
    """Affected device, e.g. ``PCI:0000:b9:00``; empty for the whole node."""

    urgency: Urgency = Urgency.IMMEDIATE
    """Whether the remedy starts at once or after the jobs of the node."""

    min_count: int = 1
    """Number of occurrences within ``window`` that make a fault; fewer prove nothing."""

    window: timedelta = timedelta(0)
    """Time in which ``min_count`` occurrences must lie; 0 if one is enough."""

    seen_at: tuple[datetime, ...] = ()
    """Times of the occurrences so far, oldest first, while they are too few for a fault."""

    corroborated_within: timedelta = timedelta(0)
    """Maximum time, before or after, to another sample that supports it; without one it is no fault
    that counts. 0: it needs no support."""

    @property
    def key(self) -> tuple[str, str, int | None, str]:
        """Identity of the fault: findings with equal keys concern the same fault."""
        return (self.family, self.reason, self.code, self.device)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A finding that needs a remedy and is still present."""

    family: str
    condition: str
    reason: str
    severity: Severity
    remedy: Remedy
    message: str
    since: datetime
    code: int | None = None
    device: str = ""
    urgency: Urgency = Urgency.IMMEDIATE
    seen_at: datetime | None = None
    """Time of its newest event; None where a lasting state is read instead of events."""

    count: int = 1
    """Number of times that the evidence was seen."""

    followers: int = 0
    """Number of other findings that were only consequences of it."""

    decides: tuple[int, ...] = ()
    """Codes of the same family and device whose remedies it has replaced."""

    corroborated_within: timedelta = timedelta(0)
    """As in ``Finding.corroborated_within``; 0 once another sample supports it."""

    @property
    def key(self) -> tuple[str, str, int | None, str]:
        """As in ``Finding.key``."""
        return (self.family, self.reason, self.code, self.device)
