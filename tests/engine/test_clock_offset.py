"""Detection of a clock that was set."""

from datetime import timedelta

import pytest

from holdfast.engine.clock_offset import ClockOffset
from tests.ports.fakes import FakeClock

HOUR = timedelta(hours=1)


@pytest.mark.parametrize("step", [HOUR, -HOUR, timedelta(0)])
def test_a_step_counts_once_from_the_construction_on(step) -> None:
    clock = FakeClock()
    offset = ClockOffset(clock)

    clock.set_forward(step)
    clock.time += timedelta(seconds=59)

    assert offset.step() == step
    assert offset.step() == timedelta(0)


def test_a_step_long_after_the_last_call_does_not_count() -> None:
    clock = FakeClock()
    offset = ClockOffset(clock)

    clock.set_forward(HOUR)
    clock.time += timedelta(minutes=3, microseconds=1)

    assert offset.step() == timedelta(0)
