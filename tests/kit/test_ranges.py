"""Ranges of settings: which values are refused, and how they are shown."""

from dataclasses import dataclass
from datetime import timedelta

import pytest

from holdfast.kit.ranges import require_longer_than_zero, require_not_negative, too_short

ZERO, TICK = timedelta(0), timedelta(milliseconds=1)


@dataclass
class Settings:
    poll: timedelta | None = TICK
    count: int = 0


@pytest.mark.parametrize("value", [None, TICK, timedelta(days=1)])
def test_a_duration_longer_than_zero_or_none_is_allowed(value) -> None:
    require_longer_than_zero(Settings(poll=value), "poll")
    require_not_negative(Settings(poll=value), "poll", "count")


@pytest.mark.parametrize(
    ("value", "shown"), [(ZERO, "0s"), (-TICK, "-1ms"), (timedelta(minutes=-90), "-1h30m")]
)
def test_a_refused_duration_is_shown_with_its_unit(value, shown) -> None:
    expected = f"poll must be longer than 0s, got {shown}"

    assert [*too_short(Settings(poll=value), "poll")] == [expected]
    with pytest.raises(ValueError, match=f"^{expected}$"):
        require_longer_than_zero(Settings(poll=value), "poll")


def test_all_negative_settings_are_named_at_once() -> None:
    require_not_negative(Settings(poll=ZERO, count=0), "poll", "count")
    expected = "^poll must not be negative, got -1ms; count must not be negative, got -1$"

    with pytest.raises(ValueError, match=expected):
        require_not_negative(Settings(poll=-TICK, count=-1), "poll", "count")
