"""Reasons that a detector of state may report, with remedy and source.

Each detector lists its own as ``STATE_REASONS``; those of the kernel log are in its rules.
"""

from dataclasses import dataclass

from holdfast.model.health import Remedy, Severity, Urgency
from holdfast.model.names import Reason


@dataclass(frozen=True, slots=True)
class StateReason:
    """One reason of one detector."""

    family: str
    reason: Reason
    severity: Severity
    remedy: Remedy
    source: str
    """What is read, and the source of the rating."""

    urgency: Urgency = Urgency.IMMEDIATE


def note(family: str, reason: Reason, source: str) -> StateReason:
    """Return a reason that needs no repair."""
    return StateReason(family, reason, Severity.WARNING, Remedy.NONE, source)


def fault(family: str, reason: Reason, remedy: Remedy, source: str) -> StateReason:
    """Return a fault that ends the jobs of the node."""
    return StateReason(family, reason, Severity.FATAL, remedy, source)


def deferred(family: str, reason: Reason, remedy: Remedy, source: str) -> StateReason:
    """Return a fault that is repaired once the jobs of the node have ended."""
    return StateReason(family, reason, Severity.WARNING, remedy, source, Urgency.DEFERRED)
