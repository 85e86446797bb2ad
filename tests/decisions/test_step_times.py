"""When a pause between two steps is suspicious."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.step_times import (
    MIN_PAUSES,
    WINDOW,
    StallLimits,
    StepTimes,
    after_step,
    stall_limit,
)

NO_FLOOR = StallLimits(floor=timedelta(0))
SECONDS = st.floats(0.001, 1000)


def learned(*pauses: float) -> StepTimes:
    times = StepTimes()
    for pause in pauses:
        times = after_step(times, timedelta(seconds=pause))
    return times


def test_too_few_steps_teach_nothing() -> None:
    assert stall_limit(learned(*[1.0] * (MIN_PAUSES - 1)), NO_FLOOR) is None
    assert stall_limit(learned(*[1.0] * MIN_PAUSES), NO_FLOOR) == timedelta(seconds=10)


def test_the_limit_is_a_multiple_of_the_usual_pause_and_not_below_the_floor() -> None:
    steady = learned(*[2.0] * 100)

    assert stall_limit(steady, StallLimits(factor=5, floor=timedelta(0))) == timedelta(seconds=10)
    assert stall_limit(steady, StallLimits()) == timedelta(minutes=3)


def test_a_rare_evaluation_raises_the_limit_to_twice_its_time() -> None:
    times = learned(*[1.0] * 400, 600.0, *[1.0] * 100)

    assert stall_limit(times, NO_FLOOR) == timedelta(seconds=1200)
    assert times.longest == timedelta(seconds=600)


def test_old_pauses_are_forgotten() -> None:
    times = learned(600.0, *[1.0] * WINDOW)

    assert len(times.pauses) == WINDOW
    assert stall_limit(times, NO_FLOOR) == timedelta(seconds=10)


def test_a_clock_that_goes_back_is_no_pause() -> None:
    assert learned(-5.0).pauses == (0.0,)


@given(st.lists(SECONDS, min_size=MIN_PAUSES, max_size=100), st.floats(1, 100), SECONDS)
def test_no_pause_that_was_seen_before_is_suspicious(pauses, factor, floor) -> None:
    limits = StallLimits(factor=factor, floor=timedelta(seconds=floor))
    limit = stall_limit(learned(*pauses), limits)

    assert limit is not None
    assert limit >= timedelta(seconds=max(pauses))
    assert limit >= limits.floor


@given(st.lists(SECONDS, min_size=MIN_PAUSES, max_size=60), st.randoms(use_true_random=False))
def test_the_order_of_the_pauses_does_not_matter(pauses, random) -> None:
    shuffled = list(pauses)
    random.shuffle(shuffled)

    assert stall_limit(learned(*pauses), NO_FLOOR) == stall_limit(learned(*shuffled), NO_FLOOR)
