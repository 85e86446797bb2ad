"""What a detector is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from holdfast.model.health import Finding


class Profile(StrEnum):
    """Whose opinion of a fault counts where vendors disagree."""

    HYPERPOD = "hyperpod"
    """As Amazon SageMaker HyperPod repairs nodes; NVIDIA's word where it is silent."""

    NVIDIA = "nvidia"
    """The immediate action of NVIDIA's catalogue."""


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
    """In the order of the log. Lines with none of the detectors' ``marks`` are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """Turns readings into findings. ``detect`` is pure and never raises."""

    name: str
    reads: frozenset[str]
    """Names of the fields of ``Readings`` that it looks at; it is called when one has news."""

    detect: Callable[[Readings], list[Finding]] = field(repr=False)

    marks: tuple[str, ...] = ()
    """A line of the kernel log that holds none of these words cannot concern it."""

    codes: Mapping[int, str] = field(default_factory=dict, repr=False)
    """What the codes of its findings mean, in a few words; empty where they have none."""
