from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.kit.units import format_duration, parse_duration

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("15m", 900),
        ("1h30m", 5400),
        ("1d", 86400),
        ("200ms", 0.2),
        ("1.5h", 5400),
        ("0s", 0),
    ],
)
def test_durations_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "90", "s", "1 h", "-5s", "1h 30m", "5sec", "1e3s", "٣s"])
def test_anything_else_is_rejected_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a duration such as 90s, 15m or 1h30m"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["9999999999d", "9" * 400 + "s"])
def test_a_duration_that_is_too_long_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="exceeds the maximum duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.0001, "0s"),
        (0.045, "45ms"),
        (0.9994, "999ms"),
        (0.9996, "1s"),
        (1, "1s"),
        (12.34, "12.3s"),
        (59.94, "59.9s"),
        (59.96, "1m"),
        (61, "1m1s"),
        (3599.4, "59m59s"),
        (3599.6, "1h"),
        (5400, "1h30m"),
        (5459, "1h30m"),
        (86399.6, "1d"),
        (90000, "1d1h"),
        (-5, "-5s"),
    ],
)
def test_durations_are_printed_to_two_units(seconds: float, text: str) -> None:
    assert format_duration(timedelta(seconds=seconds)) == text


edges = st.sampled_from([1, 60, 3600, 86400]).flatmap(
    lambda size: st.integers(-2, 2).map(lambda ms: timedelta(seconds=size, milliseconds=ms))
)


@given(edges | st.timedeltas(timedelta(0), timedelta(days=1000)))
@example(timedelta(0))
def test_what_is_printed_reads_back_within_the_smaller_of_its_two_units(
    duration: timedelta,
) -> None:
    read = parse_duration(format_duration(duration))

    tolerance = max(timedelta(milliseconds=50), duration / 24)
    assert abs(read - duration) <= tolerance


@given(edges | st.timedeltas(timedelta(0), timedelta(days=1000)))
def test_printing_what_was_read_back_changes_nothing_more(duration: timedelta) -> None:
    text = format_duration(duration)

    assert format_duration(parse_duration(text)) == text
