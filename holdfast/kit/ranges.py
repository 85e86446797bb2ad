"""Validation of durations and numbers in settings."""

from collections.abc import Iterator
from datetime import timedelta

from holdfast.kit.units import format_duration


def too_short(settings: object, *keys: str) -> Iterator[str]:
    """Yield a problem for each of these durations that is not longer than 0s; None is allowed."""
    for key in keys:
        value = getattr(settings, key)
        if value is not None and value <= timedelta(0):
            yield f"{key} must be longer than 0s, got {format_duration(value)}"


def refuse(*problems: str) -> None:
    """Raise ``ValueError`` with all problems, if there are any."""
    if problems:
        raise ValueError("; ".join(problems))


def require_longer_than_zero(settings: object, *keys: str) -> None:
    """Raise ``ValueError`` if one of these durations is not longer than 0s; None is allowed."""
    refuse(*too_short(settings, *keys))


def require_not_negative(settings: object, *keys: str) -> None:
    """Raise ``ValueError`` if one of these durations or numbers is negative; None is allowed."""
    problems = []
    for key in keys:
        value = getattr(settings, key)
        if value is not None and value < type(value)(0):
            shown = format_duration(value) if isinstance(value, timedelta) else value
            problems.append(f"{key} must not be negative, got {shown}")
    refuse(*problems)
