"""Share of a total, as a count or a percentage."""

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

_TEXT = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<percent>\s*%)?")


@dataclass(frozen=True, slots=True)
class Quota:
    """At most ``count`` of something, or at most ``percent`` of it; exactly one is set."""

    count: int | None = None
    percent: float | None = None

    def __post_init__(self) -> None:
        if (self.count is None) == (self.percent is None):
            raise ValueError("a quota is either a count or a percentage")
        if self.count is not None and self.count < 0:
            raise ValueError(f"a count must be 0 or more, got {self.count}")
        if self.percent is not None and not 0 <= self.percent <= 100:
            raise ValueError(f"a percentage must be from 0 to 100, got {self.percent:g}")

    @classmethod
    def parse(cls, value: object) -> "Quota":
        """Parse ``3``, ``"3"`` or ``"20%"``.

        Raises:
            ValueError: the message names what was expected.

        """
        if isinstance(value, int) and not isinstance(value, bool):
            return cls(count=value)
        match = _TEXT.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None or (not match["percent"] and "." in match["number"]):
            raise ValueError(f"{value!r} is neither a count such as 3 nor a percentage such as 20%")
        if match["percent"]:
            return cls(percent=float(match["number"]))
        return cls(count=int(match["number"]))

    def of(self, total: int) -> int:
        """Return how many of ``total`` this is; a percentage is rounded up.

        Rounded up so that 20 % of a cluster of one node still lets that node be repaired.
        """
        if self.count is not None:
            return self.count
        return _rounded_up(self.percent, total)

    def __str__(self) -> str:
        return f"{self.percent:g}%" if self.percent is not None else str(self.count)


@lru_cache(maxsize=1024)
def _rounded_up(percent: float | None, total: int) -> int:
    return math.ceil(Fraction(str(percent)) * total / 100)
