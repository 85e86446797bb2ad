"""Simulated machine and its agent."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from holdfast.adapters.sim.scenario import Defect
from holdfast.model.health import Fault, Remedy, Severity


class Power(StrEnum):
    """State of a machine."""

    ON = "on"
    BOOTING = "booting"
    HUNG = "hung"
    """Powered on, and frozen."""

    OFF = "off"
    REMOVED = "removed"
    """Taken away by its owner or replaced."""


@dataclass(slots=True, eq=False)
class SimMachine:
    """A machine. World time is an argument; timers belong to the world."""

    provider_id: str
    heartbeat: timedelta
    number: int = 0
    """Index in the order in which machines were created, from 0."""

    power: Power = Power.BOOTING
    boot: int = 1
    faults: dict[str, Fault] = field(default_factory=dict)
    """Faults that the agent reports, by reason."""

    defects: list[Defect] = field(default_factory=list)
    """Defects that a reboot does not fix."""

    has_successor: bool = False
    """Whether it was replaced, or its replacement is booting."""

    fails_to_boot: bool = False
    """Whether it never boots again."""

    _reporting_since: datetime | None = None
    _heartbeat_at: datetime | None = None
    _last_report: tuple[Fault, ...] = ()
    _hung_at: datetime | None = None

    @property
    def boot_id(self) -> str:
        """ID of the current boot."""
        return f"boot-{self.boot}"

    @property
    def powered_on(self) -> bool | None:
        """Machine state that the provider reports."""
        if self.power is Power.BOOTING:
            return None
        return self.power in (Power.ON, Power.HUNG)

    @property
    def is_reporting(self) -> bool:
        """Whether its agent sends heartbeats now."""
        return self._reporting_since is not None

    @property
    def is_well(self) -> bool:
        """Whether it works and its agent reports no fault that requires a repair."""
        if self._reporting_since is None:
            return False
        return not any(fault.remedy.touches_node for fault in self.faults.values())

    def heartbeat_at(self, now: datetime) -> datetime | None:
        """Time of the agent's last heartbeat in this boot."""
        if self._reporting_since is None:
            return self._heartbeat_at
        return now - (now - self._reporting_since) % self.heartbeat

    def answered_at(self, now: datetime) -> datetime | None:
        """Time of the last response of the scheduler's daemon in this boot."""
        return self._hung_at if self.power is Power.HUNG else now if self.is_ready else None

    @property
    def is_ready(self) -> bool:
        """Whether that daemon accepts jobs."""
        return self.power is Power.ON

    def hang(self, now: datetime) -> None:
        """Freeze the machine; it stays powered on."""
        self.power = Power.HUNG
        self._hung_at = now

    def report(self) -> tuple[Fault, ...]:
        """Last report of the agent in this boot."""
        return tuple(self.faults.values()) if self.is_reporting else self._last_report

    def send_heartbeat(self, now: datetime) -> None:
        """Start or resume the agent."""
        self._reporting_since = now

    def fall_silent(self, now: datetime) -> None:
        """Silence the agent."""
        self._heartbeat_at = self.heartbeat_at(now)
        self._last_report = self.report()
        self._reporting_since = None

    def note(self, defect: Defect, now: datetime) -> None:
        """Make the agent report a defect; evidence of an already reported one accumulates."""
        known = self.faults.get(defect.reason)
        if known is not None and defect.remedy is not Remedy.RESTART_APP:
            self.faults[defect.reason] = replace(known, count=known.count + 1, seen_at=now)
            return
        self.faults[defect.reason] = Fault(
            family="xid",
            condition=defect.condition,
            reason=defect.reason,
            severity=Severity.FATAL if defect.remedy.touches_node else Severity.WARNING,
            remedy=defect.remedy,
            message=f"simulated: {defect.reason}",
            since=now,
            seen_at=now,
            urgency=defect.urgency,
        )

    def cut(self, power: Power) -> None:
        """Terminate everything on the machine; its agent restarts at the next boot."""
        self.power = power
        self.boot += 1
        self.faults = {}
        self._reporting_since = self._heartbeat_at = self._hung_at = None
        self._last_report = ()
