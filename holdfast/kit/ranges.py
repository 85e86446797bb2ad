"""Ranges of durations and numbers in settings."""

from collections.abc import Iterator
from datetime import timedelta

from holdfast.kit.units import format_duration


def too_short(settings: object, *keys: str) -> Iterator[str]:
    """Yield a problem for each of these durations that is not longer than 0s; None is allowed."""
    for key in keys:
        value = getattr(settings, key)
        if value is not None and value <= timedelta(0):
            yield f"{key} must be longer than 0s, got {format_duration(value)}"


def require_longer_than_zero(settings: object, *keys: str) -> None:
    """Raise ``ValueError`` unless each of these durations is longer than 0s or None."""
    if problems := [*too_short(settings, *keys)]:
        raise ValueError("; ".join(problems))


def require_not_negative(settings: object, *keys: str) -> None:
    """Raise ``ValueError`` unless each of these durations and numbers is 0 or more, or None."""
    problems = []
    for key in keys:
        value = getattr(settings, key)
        if value is not None and value < type(value)(0):
            shown = format_duration(value) if isinstance(value, timedelta) else value
            problems.append(f"{key} must not be negative, got {shown}")
    if problems:
        raise ValueError("; ".join(problems))
