"""Cron expressions of AWS, as HyperPod accepts them: at most one run a day, in UTC.

The grammar is that of ``ScheduleExpression`` of ``AWS::SageMaker::Cluster`` in the reference of
AWS CloudFormation.
"""

import calendar
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Self

_EXPRESSION: Final = re.compile(
    r"cron\((\S{1,3}) (\S{1,3}) (\S{1,3}) (\S{1,4}) (\S{1,3}) (\S{1,4})\)"
)
_DAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
"""Days of the week; their numbers in an expression are 1 to 7."""

_FIRST_YEAR: Final = 2020
_LAST_YEAR: Final = 2099
_ANY: Final = "?"
_ALL: Final = "*"


@dataclass(frozen=True, slots=True)
class _Weekday:
    """Days of a month that are a certain day of the week."""

    number: int
    """0 is Sunday."""

    nth: int = 0
    """1 for the first one of the month, -1 for the last one; 0 for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CronSchedule:
    """Times of a cron expression."""

    minute: int
    hour: int
    day: int | _Weekday
    """Day of the month, or days of the week."""

    months: tuple[int, ...]
    year: int | None
    """None for every year."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``cron(MINUTE HOUR DAY-OF-MONTH MONTH DAY-OF-WEEK YEAR)``.

        Raises:
            ValueError: it is invalid, or no date matches it.

        """
        found = _EXPRESSION.fullmatch(text)
        if found is None:
            raise ValueError(
                "expected cron(MINUTE HOUR DAY-OF-MONTH MONTH DAY-OF-WEEK YEAR), such as "
                f"cron(0 3 ? * SUN *), got {text[:80]!r}"
            )
        minute, hour, day, month, weekday, year = found.groups()
        schedule = cls(
            minute=_number("minute", minute, 0, 59),
            hour=_number("hour", hour, 0, 23),
            day=_day(day, weekday),
            months=_months(month),
            year=None if year == _ALL else _number("year", year, _FIRST_YEAR, _LAST_YEAR, _ALL),
        )
        if schedule.next_after(datetime(_FIRST_YEAR - 1, 12, 31, tzinfo=UTC)) is None:
            raise ValueError(f"no date matches {text}")
        return schedule

    def next_after(self, moment: datetime) -> datetime | None:
        """First time after a moment; None if there is none until the end of 2099."""
        for year in range(max(moment.year, _FIRST_YEAR), _LAST_YEAR + 1):
            if self.year not in (None, year):
                continue
            for month in self.months:
                for day in self._days(year, month):
                    found = datetime(year, month, day, self.hour, self.minute, tzinfo=UTC)
                    if found > moment:
                        return found
        return None

    def _days(self, year: int, month: int) -> Iterator[int]:
        count = calendar.monthrange(year, month)[1]
        if isinstance(self.day, int):
            if self.day <= count:
                yield self.day
            return
        first = (self.day.number - 1 - calendar.weekday(year, month, 1)) % 7 + 1
        matching = range(first, count + 1, 7)
        if self.day.nth == 0:
            yield from matching
        elif self.day.nth <= len(matching):
            yield matching[self.day.nth - (self.day.nth > 0)]


def _day(day: str, weekday: str) -> int | _Weekday:
    if (day == _ANY) == (weekday == _ANY):
        raise ValueError(
            f"expected ? as either the day of the month or the day of the week, got {day!r} and "
            f"{weekday!r}"
        )
    return _weekday(weekday) if day == _ANY else _number("day of the month", day, 1, 31, _ANY)


def _weekday(text: str) -> _Weekday:
    if text in _DAYS:
        return _Weekday(_DAYS.index(text))
    if text == "L":
        return _Weekday(len(_DAYS) - 1)
    found = re.fullmatch(r"([1-7])(?:#([1-5])|(L))?", text, re.ASCII)
    if found is None:
        raise ValueError(
            f"expected a day of the week as MON, 2 (1 is Sunday), 2#1 (the first Monday of the "
            f"month), 2L (the last one), L (Saturday) or ?, got {text!r}"
        )
    number, nth, last = found.groups()
    return _Weekday(int(number) - 1, -1 if last else int(nth or 0))


def _months(text: str) -> tuple[int, ...]:
    if text == _ALL:
        return tuple(range(1, 13))
    if text.startswith("*/"):
        return tuple(range(1, 13, _number("step of months", text[2:], 1, 12)))
    return (_number("month", text, 1, 12, "* or */2"),)


def _number(what: str, text: str, least: int, most: int, other: str = "") -> int:
    is_number = re.fullmatch("[0-9]{1,4}", text) is not None
    if not is_number or not least <= int(text) <= most:
        more = f" or {other}" if other else ""
        raise ValueError(f"expected a {what} from {least} to {most}{more}, got {text!r}")
    return int(text)
