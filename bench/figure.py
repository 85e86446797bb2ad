"""The result of a benchmark."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured value beside its goal.

    A module of this folder is a benchmark if it has ``run()``, which returns or yields figures. One
    that runs only when it is named has ``BY_NAME_ONLY``, which is the reason. One that needs more
    than Python has ``lacks() -> str``, which returns what is missing and how to install it. One
    that can be shorter takes ``quick``; one whose number of samples can be chosen takes
    ``samples``, 0 for its own; one whose samples are random takes ``seed``; one that takes as long
    as it may takes ``duration``, a ``timedelta``, zero for its own.
    """

    name: str
    """What was measured, e.g. ``rank exit to decision, p99``."""

    value: float
    unit: str
    goal: float | None
    """The largest value that is good; 0 for what must not happen at all; None if there is none."""

    @property
    def is_met(self) -> bool:
        """Whether the goal is met."""
        return self.goal is None or self.value <= self.goal

    @property
    def ratio(self) -> float | None:
        """The part of the goal that is used up; None where the goal is 0 or missing."""
        return self.value / self.goal if self.goal else None
