"""Counts the calls from the controller to the simulated world, and injects failures and kills."""

from datetime import datetime
from types import TracebackType
from typing import Protocol, Self

from holdfast.adapters.sim.scenario import ControllerFaults
from holdfast.model.errors import BackendError


class ControllerKilled(BaseException):
    """The controller process was killed at this call. Only the simulation catches it."""


class TimeSource(Protocol):
    """Source of the simulated time."""

    now: datetime


class CallGate:
    """Counts calls to all ports; fails or kills the controller at the planned ones."""

    def __init__(
        self,
        time: TimeSource,
        controller_faults: ControllerFaults,
        outages: tuple[tuple[datetime, datetime], ...],
    ) -> None:
        self.calls = 0
        self.failed = 0
        """Calls that failed."""

        self.changes = 0
        """Calls that may have changed something."""

        self._time = time
        self._kills = dict(controller_faults.kills)
        self._failures = dict(controller_faults.failures)
        self._outages = outages

    def reading(self) -> "GatedCall":
        """Context of a call that only reads."""
        return GatedCall(self)

    def writing(self) -> "GatedCall":
        """Context of a call that writes and may fail."""
        self.changes += 1
        return GatedCall(self)

    def safe(self) -> "GatedCall":
        """Context of a call that writes and by its contract raises no ``BackendError``."""
        self.changes += 1
        return GatedCall(self, can_fail=False)

    def midway(self) -> None:
        """A point inside a call where it may fail half done."""
        with GatedCall(self):
            pass

    def enter(self, number: int, *, can_fail: bool) -> None:
        """Start a call, which may fail before it has any effect."""
        if self._kills.get(number) is False:
            raise ControllerKilled
        if not can_fail:
            return
        now = self._time.now
        if self._failures.get(number) is False or any(a <= now < b for a, b in self._outages):
            self._fail(number)

    def leave(self, number: int, *, can_fail: bool) -> None:
        """End a call that took effect; its response may be lost."""
        if self._kills.get(number) is True:
            raise ControllerKilled
        if can_fail and self._failures.get(number) is True:
            self._fail(number)

    def _fail(self, number: int) -> None:
        self.failed += 1
        raise BackendError(f"simulated failure of call {number}")


class GatedCall:
    """One call, as a context."""

    __slots__ = ("_can_fail", "_gate", "_number")

    def __init__(self, gate: CallGate, *, can_fail: bool = True) -> None:
        gate.calls += 1
        self._gate = gate
        self._number = gate.calls
        self._can_fail = can_fail

    def __enter__(self) -> Self:
        self._gate.enter(self._number, can_fail=self._can_fail)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self._gate.leave(self._number, can_fail=self._can_fail)
