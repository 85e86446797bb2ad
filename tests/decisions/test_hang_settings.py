"""Settings of suspected hangs in environment variables."""

from datetime import timedelta

import pytest

from holdfast.decisions.hang_settings import HangSettings, parse_hang_settings
from holdfast.decisions.step_times import StallLimits

MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, HangSettings()),
        ({"HOLDFAST_HANG_TIMEOUT": "auto"}, HangSettings(restarts=True)),
        (
            {"HOLDFAST_HANG_TIMEOUT": "10m"},
            HangSettings(limits=StallLimits(timeout=10 * MINUTE), restarts=True),
        ),
        ({"HOLDFAST_HANG_TIMEOUT": "0s"}, HangSettings()),
        (
            {"HOLDFAST_STALL_FLOOR": "5m", "HOLDFAST_STALL_START": "0s"},
            HangSettings(limits=StallLimits(floor=5 * MINUTE, start=timedelta(0))),
        ),
    ],
)
def test_settings_are_read(given, expected) -> None:
    assert parse_hang_settings(given) == (expected, ())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("HOLDFAST_HANG_TIMEOUT", "expected auto, or a duration such as 10m"),
        ("HOLDFAST_STALL_FLOOR", "expected a duration such as 10m"),
        ("HOLDFAST_STALL_START", "expected a duration such as 10m"),
    ],
)
def test_an_invalid_value_is_reported_and_restarts_nothing(name, expected) -> None:
    settings, problems = parse_hang_settings({name: "soon"})

    assert settings == HangSettings()
    assert problems == (f"{name} is 'soon', {expected}",)
