"""What a node's agent says of its node."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from holdfast.model.conditions import NodeCondition
from holdfast.model.health import Fault, Finding

REPORT_LIMIT: Final = 4 * 1024 * 1024
"""Bytes of a report that are read; one with every possible fault has some 100 kB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """The whole present word of one agent; each report replaces the one before it."""

    node: str
    boot_id: str
    sequence: int
    """Grows with every report of one agent process."""

    reported_at: datetime
    faults: tuple[Fault, ...] = ()
    """What calls for a remedy and still holds, oldest first."""

    notices: tuple[Finding, ...] = ()
    """The newest findings that call for none, oldest first; then one for each suspect."""

    suspects: tuple[Fault, ...] = ()
    """What would be among ``faults`` if another reading supported it."""

    conditions: tuple[NodeCondition, ...] = ()
    """What the faults come to; it goes on over restarts and reboots."""
