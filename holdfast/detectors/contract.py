"""What a detector is."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.model.health import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One record of a kernel log, its prefix already taken off."""

    message: str
    """The kernel's own words; a record of several lines keeps its newlines."""

    observed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """What was read from a node since the last round. Each detector looks at what it declared."""

    kernel_log: tuple[LogLine, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """Turns readings into findings. ``detect`` is pure and never raises."""

    name: str
    reads: frozenset[str]
    """Names of the fields of ``Readings`` that it looks at."""

    detect: Callable[[Readings], list[Finding]] = field(repr=False)
