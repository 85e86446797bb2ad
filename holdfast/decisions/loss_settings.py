"""Text forms of the settings of numerical faults, in annotations and environment variables. Pure.

``HOLDFAST_BAD_LOSS`` is the step from which checkpoint verification trusts nothing.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from holdfast.decisions.loss_faults import LossLimits
from holdfast.kit.rejections import Rejection
from holdfast.model.jobs import Failure, LossAction

LONGEST_WINDOW: Final = 10_000
"""Maximum of ``LossLimits.window``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossKeys:
    """Names under which a platform has the settings."""

    action: str
    window: str
    tolerance: str


VARIABLES = LossKeys(
    action="HOLDFAST_LOSS_ACTION",
    window="HOLDFAST_LOSS_WINDOW",
    tolerance="HOLDFAST_LOSS_TOLERANCE",
)
"""Environment variables of a step of Slurm."""


def parse_loss_limits(
    given: Mapping[str, str | None], keys: LossKeys
) -> tuple[LossLimits | None, tuple[Rejection, ...]]:
    """Return the settings, and the values that are invalid: their defaults apply.

    None instead of settings if there is no value at all; empty text is no value.
    """
    texts = {
        key: (given.get(key) or "").strip() for key in (keys.action, keys.window, keys.tolerance)
    }
    if not any(texts.values()):
        return None, ()
    default, problems = LossLimits(), []
    action, window, tolerance = default.action, default.window, default.tolerance
    if (text := texts[keys.action]) in list(LossAction):
        action = LossAction(text)
    elif text:
        expected = f"one of {', '.join(LossAction)}; {action} is used instead"
        problems.append(Rejection(keys.action, text, expected))
    if text := texts[keys.window]:
        count = _number(text)
        if 1 <= count <= LONGEST_WINDOW and count == int(count):
            window = int(count)
        else:
            expected = f"a whole number from 1 to {LONGEST_WINDOW}; {window} is used instead"
            problems.append(Rejection(keys.window, text, expected))
    if text := texts[keys.tolerance]:
        number = _number(text)
        if 0 <= number < math.inf:
            tolerance = number
        else:
            expected = f"a number from 0; {tolerance:g} is used instead"
            problems.append(Rejection(keys.tolerance, text, expected))
    return LossLimits(action=action, window=window, tolerance=tolerance), tuple(problems)


def bad_loss(failure: Failure | None) -> str:
    """Return the value of ``HOLDFAST_BAD_LOSS`` after a failure; empty unless it is by the loss."""
    if failure is None or failure.loss_action is None or failure.step is None:
        return ""
    return bad_loss_text(failure.step, failure.began_at)


def bad_loss_text(step: int, at: datetime) -> str:
    """Return the value of ``HOLDFAST_BAD_LOSS`` for a step and the time of its report."""
    return f"{step}@{at.isoformat(timespec='milliseconds')}"


def parse_bad_loss(text: str) -> tuple[int, datetime] | None:
    """Return step and time of such a value; None if it is empty or invalid."""
    step, _, at = text.partition("@")
    if not (step.isascii() and step.isdecimal() and len(step) < 19):
        return None
    try:
        found = datetime.fromisoformat(at)
    except ValueError:
        return None
    return (int(step), found) if found.tzinfo is not None else None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
