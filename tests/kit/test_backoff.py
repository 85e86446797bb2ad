from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.kit.backoff import Backoff

SECOND = timedelta(seconds=1)
TICK = timedelta.resolution
YEAR = timedelta(days=365)

delays = st.sampled_from([timedelta(0), TICK, SECOND, YEAR]) | st.timedeltas(timedelta(0), YEAR)
backoffs = st.builds(Backoff, delays, delays)
failures = st.sampled_from([0, 1, 2, 10**9]) | st.integers(0, 100)
jitters = st.sampled_from([0.0, 1.0]) | st.floats(0, 1)


@given(backoffs, st.integers(1, 100))
@example(Backoff(TICK, YEAR), 46)
def test_delays_double_from_the_first_to_the_longest(backoff: Backoff, number: int) -> None:
    expected = min(backoff.first, backoff.longest)
    for _ in range(number - 1):
        expected = min(2 * expected, backoff.longest)

    assert backoff.delay(number) == expected


@given(backoffs, jitters, st.sampled_from([0, -1, -(10**9)]))
def test_there_is_no_delay_without_a_failure(backoff: Backoff, jitter: float, number: int) -> None:
    assert backoff.delay(number, jitter) == timedelta(0)


@given(backoffs, failures, jitters)
def test_jitter_leaves_at_least_half_of_a_delay(
    backoff: Backoff, number: int, jitter: float
) -> None:
    whole = backoff.delay(number)

    assert whole / 2 - TICK <= backoff.delay(number, jitter) <= whole


@pytest.mark.parametrize(("jitter", "delay"), [(0.0, 4.0), (0.5, 3.0), (1.0, 2.0)])
def test_jitter_is_proportional(jitter: float, delay: float) -> None:
    assert Backoff(SECOND, 60 * SECOND).delay(3, jitter) == delay * SECOND


@given(delays.filter(bool), failures)
def test_many_failures_reach_the_longest_delay(longest: timedelta, number: int) -> None:
    assert Backoff(TICK, longest).delay(64 + number) == longest
