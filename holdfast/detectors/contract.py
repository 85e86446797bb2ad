"""What a detector is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from holdfast.model.health import Finding

KERNEL_LOG: Final = "kernel_log"

LOGS: Final = "logs"
"""A sample that comes when a log can be read no more, or again: its ``error`` says which."""


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
class Sample:
    """The present reading of one source of state.

    Counters of a device say nothing by themselves: they live longer than a boot, and only their
    change is news. What is missing says nothing either, unless it was there before.
    """

    name: str
    """Of the source, e.g. ``nvidia-smi``."""

    taken_at: datetime
    text: str = ""
    """What a command wrote."""

    values: Mapping[str, str] = field(default_factory=dict)
    """Small files and numbers, without blanks at their ends, by name."""

    error: str = ""
    """Why the source could not be read; empty if it was."""

    before: Mapping[str, str] = field(default_factory=dict)
    """The ``values`` of the last reading that succeeded, in this boot; empty at first."""

    seen: frozenset[str] = frozenset()
    """The names of all ``values`` that were read in this boot, the present ones among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """What was read from a node since the last round. Each detector looks at what it declared."""

    kernel_log: tuple[LogLine, ...] = ()
    """In the order of the log. Lines with none of the detectors' ``keywords`` are left out."""

    samples: Mapping[str, Sample] = field(default_factory=dict)
    """By name, those that were taken since the last round."""

    def has_news(self, names: frozenset[str]) -> bool:
        """Whether there is anything under one of ``names``, as ``Detector.reads`` has them."""
        return (bool(self.kernel_log) and KERNEL_LOG in names) or not names.isdisjoint(self.samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """Turns readings into findings. ``detect`` is pure and never raises."""

    name: str
    reads: frozenset[str]
    """``kernel_log``, or the names of samples; it is called when one of them has news."""

    detect: Callable[[Readings], list[Finding]] = field(repr=False)

    keywords: tuple[str, ...] = ()
    """A line of the kernel log that holds none of these words cannot concern it."""

    reasons: frozenset[str] = frozenset()
    """Those of the findings that it may make."""

    codes: Mapping[int, str] = field(default_factory=dict, repr=False)
    """What the codes of its findings mean, in a few words; empty where they have none."""

    every: timedelta = timedelta(minutes=1)
    """How often its samples are to be taken. Of several detectors the shortest time counts."""

    is_opt_in: bool = False
    """Whether it runs only where it is asked for: what it reads disturbs jobs."""

    settles: frozenset[str] = frozenset()
    """Families of which it says all there is each time it is called, so that what it does not
    find is over; save where it finds that a source could not be read (``SourceFailed``)."""
