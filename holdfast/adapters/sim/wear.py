"""Random faults of machines."""

from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Final

from holdfast.adapters.sim.machine import Power, SimMachine
from holdfast.adapters.sim.scenario import Defect, MachineFailure, Wear
from holdfast.adapters.sim.scenario_events import hang
from holdfast.adapters.sim.world import World

_NEVER_DAYS: Final = 36_500.0
"""Horizon: a machine without a fault for a century never gets one."""


def wearing(wear: Wear | None) -> Callable[[World, SimMachine], None]:
    """Callback that schedules the random faults of a new machine."""
    if wear is None or wear.per_machine_day <= 0:
        return lambda world, machine: None  # noqa: ARG005 - as a world calls it
    random = Random(wear.seed)  # noqa: S311 - no cryptography here

    def wear_out(world: World, machine: SimMachine) -> None:
        share = 1.0 if wear.shape is None else random.gammavariate(wear.shape, 1 / wear.shape)
        _MachineWear(world, machine, wear, share, random).wait()

    return wear_out


class _MachineWear:
    """Faults of one machine, one after the other, until it is removed."""

    def __init__(
        self, world: World, machine: SimMachine, wear: Wear, share: float, random: Random
    ) -> None:
        self._world = world
        self._machine = machine
        self._wear = wear
        self._rate = wear.per_machine_day * share
        self._random = random

    def wait(self) -> None:
        """Schedule the next fault after an exponentially distributed time."""
        if self._rate > 0:
            days = min(self._random.expovariate(self._rate), _NEVER_DAYS)
            self._world.after(timedelta(days=days), self)

    def __call__(self) -> None:
        if self._machine.power is Power.REMOVED:
            return
        kinds, weights = zip(*self._wear.kinds, strict=True)
        kind = self._random.choices(kinds, weights)[0]
        if self._machine.power is Power.ON:
            self._apply_to_machine(kind)
        self.wait()

    def _apply_to_machine(self, kind: Defect | MachineFailure) -> None:
        match kind:
            case Defect():
                self._world.break_machine(self._machine, kind)
            case MachineFailure.POWER:
                self._world.cut(self._machine, Power.OFF)
            case MachineFailure.HANG:
                hang(self._world, self._machine, None)
