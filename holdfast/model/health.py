"""Findings of detectors and the faults they add up to."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final


class Severity(StrEnum):
    """How much a finding matters for the work on the node."""

    INFO = "info"
    WARNING = "warning"
    FATAL = "fatal"


class Remedy(StrEnum):
    """The smallest act that helps, from the mildest to the strongest."""

    NONE = "none"
    RESTART_APP = "restart-app"
    RESET_GPU = "reset-gpu"
    REBOOT = "reboot"
    REPLACE = "replace"

    @property
    def strength(self) -> int:
        """Place in the order of the members; a stronger remedy covers every weaker one."""
        return _STRENGTHS[self]

    @property
    def touches_node(self) -> bool:
        """Whether the node itself needs the remedy, not only the application on it."""
        return self.strength >= Remedy.RESET_GPU.strength


_STRENGTHS: Final = {remedy: place for place, remedy in enumerate(Remedy)}


class Urgency(StrEnum):
    """When a remedy may begin."""

    IMMEDIATE = "immediate"
    """The job is lost anyway: act now."""

    DEFERRED = "deferred"
    """The node still works: act when its jobs have ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One judgement of one detector about one reading."""

    family: str
    """Kind of evidence, e.g. ``xid``."""

    condition: str
    """Node condition that this finding sets to True, from ``model.names``."""

    reason: str
    """Stable PascalCase cause, from ``model.names``."""

    severity: Severity
    remedy: Remedy
    message: str
    """The evidence itself, e.g. the kernel's line without its prefix."""

    observed_at: datetime
    code: int | None = None
    """Number in the family, e.g. the XID; None where the family has none."""

    device: str = ""
    """What is affected, e.g. ``PCI:0000:b9:00``; empty for the whole node."""

    urgency: Urgency = Urgency.IMMEDIATE
    min_count: int = 1
    """How often it must be seen within ``window`` to be a fault; less proves nothing."""

    window: timedelta = timedelta(0)
    seen_at: tuple[datetime, ...] = ()
    """When it was seen as yet, oldest first, while it was not often enough to be a fault."""

    corroborated_within: timedelta = timedelta(0)
    """Another reading must support it within so long, before or after, to be a fault that counts;
    with 0 it stands for itself."""

    @property
    def key(self) -> tuple[str, str, int | None, str]:
        """Two findings with equal keys speak of the same fault."""
        return (self.family, self.reason, self.code, self.device)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A finding that calls for a remedy and still holds."""

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
    """When its newest event was seen; None where not events but a lasting state is read."""

    count: int = 1
    """How often the evidence was seen."""

    followers: int = 0
    """How many other findings were but consequences of it."""

    decides: tuple[int, ...] = ()
    """Codes of the same family and device whose remedies its own has replaced."""

    corroborated_within: timedelta = timedelta(0)
    """As in ``Finding.corroborated_within``; 0 as soon as another reading supports it."""

    @property
    def key(self) -> tuple[str, str, int | None, str]:
        """As in ``Finding.key``."""
        return (self.family, self.reason, self.code, self.device)
