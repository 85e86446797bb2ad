"""Step rate of the last minutes."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.step_rate import KnownSteps, step_rate, with_step

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def after(*looks: tuple[float, int]) -> KnownSteps:
    steps: KnownSteps = ()
    for seconds, step in looks:
        steps = with_step(steps, T0 + timedelta(seconds=seconds), step)
    return steps


def test_the_rate_is_the_mean_of_the_last_five_minutes() -> None:
    assert step_rate(after((0, 1), (10, 1), (20, 21))) == 1.0
    slow = [(10.0 * one, one) for one in range(100)]
    fast = [(1000.0 + one, 100 + one) for one in range(301)]
    assert step_rate(after(*slow, *fast)) == 1.0


def test_fewer_than_two_steps_have_no_rate() -> None:
    assert step_rate(()) is None
    assert step_rate(after((0, 5), (400, 5))) is None


def test_steps_that_start_again_have_no_rate() -> None:
    assert step_rate(after((0, 100), (10, 3))) is None


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 9))))
def test_no_looks_raise(looks: list[tuple[int, int]]) -> None:
    steps, seconds = (), 0
    for pause, step in looks:
        seconds += pause
        steps = with_step(steps, T0 + timedelta(seconds=seconds), step)
        assert steps
        rate = step_rate(steps)
        assert rate is None or rate > 0
