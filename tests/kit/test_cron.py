"""Cron expressions of AWS."""

import calendar
import re
from datetime import UTC, datetime, timedelta

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.kit.cron import CronSchedule

AWS = re.compile(
    r"cron\((?:[0-5][0-9]|[0-9]) (?:[01][0-9]|2[0-3]|[0-9]) (?:[1-9]|0[1-9]|[12][0-9]|3[01]|\?) "
    r"(?:[1-9]|0[1-9]|1[0-2]|\*|\*/(?:[1-9]|1[0-2])) "
    r"(?:MON|TUE|WED|THU|FRI|SAT|SUN|[1-7]|\?|L|(?:[1-7]#[1-5])|(?:[1-7]L)) (?:20[2-9][0-9]|\*)\)"
)
"""Pattern of AWS CloudFormation, without its empty alternatives."""

DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
MINUTE = timedelta(minutes=1)

numbers = st.integers(1, 7).map(str)
weekdays = st.one_of(
    st.sampled_from([*DAYS, "L"]),
    numbers,
    st.builds("{}#{}".format, numbers, st.integers(1, 5)),
    numbers.map("{}L".format),
)
days = st.one_of(
    weekdays.map(lambda one: ("?", one)), st.integers(1, 31).map(lambda one: (str(one), "?"))
)
months = st.one_of(st.just("*"), st.integers(1, 12).map(str), st.integers(1, 12).map("*/{}".format))
years = st.one_of(st.just("*"), st.integers(2020, 2099).map(str))


@st.composite
def expressions(draw) -> str:
    day, weekday = draw(days)
    minute, hour = draw(st.integers(0, 59)), draw(st.integers(0, 23))
    return f"cron({minute} {hour} {day} {draw(months)} {weekday} {draw(years)})"


moments = st.datetimes(
    datetime.fromisoformat("2020-01-01"),
    datetime.fromisoformat("2098-01-01"),
    timezones=st.just(UTC),
)


END = datetime(2100, 1, 1, tzinfo=UTC)
"""No expression of AWS has a later year."""


def matches(text: str, moment: datetime) -> bool:
    """Whether a moment is one of an expression: an independent reading of AWS's description."""
    minute, hour, day, month, weekday, year = text[5:-1].split()
    name = (moment.weekday() + 1) % 7
    last = calendar.monthrange(moment.year, moment.month)[1]
    if weekday == "L":
        is_day = name == 6
    elif "#" in weekday:
        number, nth = weekday.split("#")
        is_day = name == int(number) - 1 and (moment.day + 6) // 7 == int(nth)
    elif weekday.endswith("L"):
        is_day = name == int(weekday[0]) - 1 and moment.day > last - 7
    elif weekday == "?":
        is_day = moment.day == int(day)
    else:
        is_day = name == (DAYS.index(weekday) if weekday in DAYS else int(weekday) - 1)
    step = int(month[2:]) if month.startswith("*/") else 1
    is_month = (moment.month - 1) % step == 0 if "*" in month else moment.month == int(month)
    return (
        is_day
        and is_month
        and (year == "*" or moment.year == int(year))
        and (moment.hour, moment.minute) == (int(hour), int(minute))
    )


@given(text=expressions(), moment=moments)
@settings(max_examples=examples(300), deadline=None)
def test_the_next_time_matches_and_none_between_does(text, moment) -> None:
    assert AWS.fullmatch(text)
    try:
        schedule = CronSchedule.parse(text)
    except ValueError as error:
        assert "no date matches" in str(error)  # noqa: PT017 - the only other outcome
        assert re.search(r" (30|31) [0-9]+ \? | 29 2 \? |#5 ", text)
        return
    found = schedule.next_after(moment)
    assert found is None or (found > moment and matches(text, found))
    minute, hour = (int(one) for one in text[5:].split()[:2])
    at = moment.replace(hour=hour, minute=minute, second=0, microsecond=0)
    while at < min(found or END, moment + timedelta(days=800)):
        assert at <= moment or not matches(text, at)
        at += timedelta(days=1)


def test_a_fifth_day_of_a_month_may_not_come_again_in_this_century() -> None:
    schedule = CronSchedule.parse("cron(0 0 ? 1 1#5 *)")  # a fifth Sunday in January

    assert schedule.next_after(datetime(2096, 1, 1, tzinfo=UTC)) == datetime(
        2096, 1, 29, tzinfo=UTC
    )
    assert schedule.next_after(datetime(2096, 2, 1, tzinfo=UTC)) is None


@given(text=st.text(max_size=40) | st.from_regex(AWS, fullmatch=True).map(lambda one: one[:-2]))
@settings(max_examples=examples(200))
def test_any_other_text_is_refused_with_a_reason(text) -> None:
    if AWS.fullmatch(text):
        return
    with pytest.raises(ValueError, match=r"expected|no date"):
        CronSchedule.parse(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cron(0 3 ? * SUN *)", "2026-01-04T03:00"),
        ("cron(00 03 ? * 1 *)", "2026-01-04T03:00"),
        ("cron(30 22 15 * ? *)", "2026-01-15T22:30"),
        ("cron(0 0 1 1 ? *)", "2027-01-01T00:00"),
        ("cron(1 0 1 1 ? *)", "2026-01-01T00:01"),
        ("cron(0 4 ? * 3#2 *)", "2026-01-13T04:00"),
        ("cron(0 4 ? */3 6L *)", "2026-01-30T04:00"),
        ("cron(0 4 ? 2 L *)", "2026-02-07T04:00"),
        ("cron(0 4 29 2 ? *)", "2028-02-29T04:00"),
        ("cron(0 4 31 * ? 2027)", "2027-01-31T04:00"),
    ],
)
def test_times_of_a_schedule(text, expected) -> None:
    found = CronSchedule.parse(text).next_after(datetime(2026, 1, 1, tzinfo=UTC))

    assert found == datetime.fromisoformat(f"{expected}+00:00")
    assert CronSchedule.parse(text).next_after(found - MINUTE) == found
    assert CronSchedule.parse(text).next_after(found) != found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("rate(7 days)", "expected cron(MINUTE HOUR"),
        ("0 3 ? * SUN *", "expected cron(MINUTE HOUR"),
        ("cron(60 3 ? * SUN *)", "minute from 0 to 59, got '60'"),
        ("cron(0 24 ? * SUN *)", "hour from 0 to 23, got '24'"),
        ("cron(0 3 * * ? *)", "day of the month from 1 to 31 or ?, got '*'"),
        ("cron(0 3 ? * ? *)", "? as either the day of the month or the day of the week"),
        ("cron(0 3 1 * SUN *)", "? as either the day of the month or the day of the week"),
        ("cron(0 3 ? 13 SUN *)", "month from 1 to 12 or * or */2, got '13'"),
        ("cron(0 3 ? */0 SUN *)", "step of months from 1 to 12, got '0'"),
        ("cron(0 3 ? * 8 *)", "a day of the week as MON"),
        ("cron(0 3 ? * SUN 2019)", "year from 2020 to 2099 or *, got '2019'"),
        ("cron(0 3 30 2 ? *)", "no date matches"),
        ("cron(0 3 ? * SUN *)\n", "expected cron(MINUTE HOUR"),
        ("cron(\u0660 3 ? * SUN *)", "minute from 0 to 59"),
    ],
)
def test_what_is_wrong_is_named(text, why) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        CronSchedule.parse(text)
