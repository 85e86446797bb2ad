"""Mean step rate of the last minutes of an attempt. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

_WINDOW: Final = timedelta(minutes=5)
"""Time over which the step rate is the mean."""

_STEPS_LIMIT: Final = 4096

KnownSteps = tuple[tuple[datetime, int], ...]
"""Times at which steps became known, oldest first, within the window before the last look."""


def with_step(steps: KnownSteps, at: datetime, step: int) -> KnownSteps:
    """Return the steps of the window after a look that found a step, new or not."""
    known = steps if steps and steps[-1][1] == step else (*steps, (at, step))[-_STEPS_LIMIT:]
    begin = next((i for i, (when, _) in enumerate(known) if when >= at - _WINDOW), len(known) - 1)
    return known[begin:]


def step_rate(steps: Sequence[tuple[datetime, int]]) -> float | None:
    """Return the steps per second; None if fewer than two steps are known."""
    if len(steps) < 2:
        return None
    (began, first), (ended, last) = steps[0], steps[-1]
    seconds = (ended - began).total_seconds()
    return (last - first) / seconds if seconds > 0 and last > first else None
