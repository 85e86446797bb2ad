"""Durations, counts and text of other programs in the form in which messages have them."""

import re
from datetime import timedelta
from typing import Final

HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZES = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", re.ASCII)


def parse_duration(text: str) -> timedelta:
    """Parse ``90s``, ``15m``, ``1h30m`` or ``200ms``.

    Raises:
        ValueError: the message names what was expected.

    """
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text[:100]!r} is not a duration such as 90s, 15m or 1h30m")
    try:
        return timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in parts))
    except OverflowError:
        raise ValueError(f"{text[:100]!r} exceeds the maximum duration") from None


def format_duration(duration: timedelta) -> str:
    """Return a duration in two units at most, e.g. ``1h30m``, ``12.3s`` or ``45ms``."""
    seconds = duration.total_seconds()
    if seconds < 0:
        return "-" + format_duration(-duration)
    if 0 < round(seconds * 1000) < 1000:
        return f"{round(seconds * 1000)}ms"
    if round(seconds, 1) < 60:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    return _in_two_units(round(seconds))


def _in_two_units(seconds: int) -> str:
    place = next(place for place, (size, _) in enumerate(_SIZES) if seconds >= size)
    (size, unit), (smaller, small_unit) = _SIZES[place : place + 2]
    rest = seconds % size // smaller
    return f"{seconds // size}{unit}" + (f"{rest}{small_unit}" if rest else "")


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, e.g. ``1 node``; the plural ends in s by default."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def one_line(text: str, limit: int) -> str:
    """Return text of another program as one printable line of bounded length.

    Control characters and runs of blanks become a space.

    Args:
        text: the text.
        limit: maximum number of characters of the result.

    """
    printable = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(printable.split())[:limit]
