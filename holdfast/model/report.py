"""Report of a node's agent."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from holdfast.model.conditions import NodeCondition
from holdfast.model.hardware import DeviceGroup
from holdfast.model.health import Fault, Finding

REPORT_LIMIT: Final = 4 * 1024 * 1024
"""Maximum size of a report that is read, in bytes; one with every possible fault has some 100
kB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """Complete state that one agent reports; each report replaces the previous one."""

    node: str
    boot_id: str
    sequence: int
    """Grows with every report of one agent process."""

    reported_at: datetime
    faults: tuple[Fault, ...] = ()
    """Faults that need a remedy and are still present, oldest first."""

    notices: tuple[Finding, ...] = ()
    """Newest findings that need no remedy, oldest first; then one for each suspect."""

    suspects: tuple[Fault, ...] = ()
    """Faults that would be in ``faults`` if another sample supported them."""

    drill_until: datetime | None = None
    """End of the drill that is active: log lines that may be forged count. None without one."""

    conditions: tuple[NodeCondition, ...] = ()
    """Conditions that result from the faults; they persist over restarts and reboots."""

    hardware: tuple[DeviceGroup, ...] = ()
    """Devices and their readings, for display; renewed at most every ``HARDWARE_EVERY`` of the
    agent's loop, unless there is another reason for a report."""
