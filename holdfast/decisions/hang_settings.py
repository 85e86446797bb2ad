"""Settings of suspected hangs in environment variables. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from holdfast.decisions.step_times import StallLimits
from holdfast.kit.units import parse_duration

TIMEOUT_VARIABLE: Final = "HOLDFAST_HANG_TIMEOUT"
FLOOR_VARIABLE: Final = "HOLDFAST_STALL_FLOOR"
START_VARIABLE: Final = "HOLDFAST_STALL_START"


@dataclass(frozen=True, slots=True, kw_only=True)
class HangSettings:
    """When a step seems to hang, and what follows."""

    limits: StallLimits = StallLimits()
    restarts: bool = False
    """Whether it is restarted; otherwise the hang is only reported."""


def parse_hang_settings(
    environment: Mapping[str, str],
) -> tuple[HangSettings, tuple[str, ...]]:
    """Return the settings, and what is wrong with values that are ignored."""
    problems: list[str] = []
    default, given = StallLimits(), environment.get(TIMEOUT_VARIABLE, "").strip()
    is_learned = given == "auto"
    timeout = None if is_learned else _duration(environment, TIMEOUT_VARIABLE, problems)
    floor = _duration(environment, FLOOR_VARIABLE, problems)
    start = _duration(environment, START_VARIABLE, problems)
    limits = StallLimits(
        floor=default.floor if floor is None else floor,
        start=default.start if start is None else start,
        timeout=timeout or None,
    )
    return HangSettings(limits=limits, restarts=is_learned or bool(timeout)), tuple(problems)


def _duration(environment: Mapping[str, str], name: str, problems: list[str]) -> timedelta | None:
    """Return the value of a variable; None if it has none, or an invalid one."""
    text = environment.get(name, "").strip()
    try:
        return parse_duration(text) if text else None
    except ValueError:
        expected = "auto, or a duration" if name == TIMEOUT_VARIABLE else "a duration"
        problems.append(f"{name} is {text[:60]!r}, expected {expected} such as 10m")
        return None
