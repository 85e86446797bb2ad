"""The interface of detectors: readings of a node in, findings out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from holdfast.detectors.state_reasons import StateReason
from holdfast.model.health import Finding

KERNEL_LOG: Final = "kernel_log"

LOGS: Final = "logs"
"""Name of the sample that is taken when a log becomes unreadable or readable again; its ``error``
names the log."""


class Profile(StrEnum):
    """Vendor whose rating of a fault applies where vendors disagree."""

    HYPERPOD = "hyperpod"
    """Amazon SageMaker HyperPod's rating; NVIDIA's where HyperPod has none."""

    NVIDIA = "nvidia"
    """The immediate action in NVIDIA's XID catalog."""


class Origin(StrEnum):
    """Writer of a log line, as far as its source proves it."""

    KERNEL = "kernel"
    """The kernel: facility *kern* of ``/dev/kmsg`` or of the kernel transport of journald. The
    kernel changes the facility of everything else that is written to the device."""

    USER = "user"
    """A process that wrote to ``/dev/kmsg``: facility *user*."""

    FILE = "file"
    """Unknown: a line of a log file, where a local user can place any text through syslog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One record of a kernel log, without its prefix."""

    message: str
    """Text that the kernel wrote; a record of several lines keeps its newlines."""

    observed_at: datetime
    """Time of the record."""

    origin: Origin = Origin.KERNEL
    """Writer of the line; only the kernel's lines are evidence alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The latest reading of one source of state.

    Counters of a device outlive a boot, so only their change is evidence. A missing value is
    evidence only if it was present before.
    """

    name: str
    """Name of the source, e.g. ``nvidia-smi``."""

    taken_at: datetime
    """Time of the reading."""

    text: str = ""
    """Output of a command."""

    values: Mapping[str, str] = field(default_factory=dict)
    """Contents of small files, and numbers, by name; without blanks at both ends."""

    error: str = ""
    """Why reading the source failed; empty on success."""

    before: Mapping[str, str] = field(default_factory=dict)
    """``values`` of the previous successful reading in this boot; empty at first."""

    seen: frozenset[str] = frozenset()
    """Names of all ``values`` that were read in this boot, including the current ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """All readings of a node since the previous round."""

    kernel_log: tuple[LogLine, ...] = ()
    """In log order. Lines without any of the detectors' ``keywords`` are left out."""

    samples: Mapping[str, Sample] = field(default_factory=dict)
    """Samples that were taken since the previous round, by name."""

    def has_changes(self, names: frozenset[str]) -> bool:
        """Whether there is a new reading of ``names``, as in ``Detector.reads``."""
        return (bool(self.kernel_log) and KERNEL_LOG in names) or not names.isdisjoint(self.samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """Turns readings into findings. ``detect`` is pure and never raises."""

    name: str
    """Unique name, as in the agent's configuration."""

    reads: frozenset[str]
    """``kernel_log`` or names of samples; the detector runs for each new reading."""

    detect: Callable[[Readings], list[Finding]] = field(repr=False)
    """Returns the findings of the readings."""

    keywords: tuple[str, ...] = ()
    """Texts of which every kernel message that the detector matches contains at least one."""

    reasons: frozenset[str] = frozenset()
    """Reasons of all findings that it can return."""

    state_reasons: tuple[StateReason, ...] = field(default=(), repr=False)
    """Its reasons with remedy and source, for the documentation; empty if its rules have them."""

    codes: Mapping[int, str] = field(default_factory=dict, repr=False)
    """Short meanings of the codes of its findings; empty if they have none."""

    every: timedelta = timedelta(minutes=1)
    """Sampling interval. Of several detectors of one source the shortest applies."""

    is_opt_in: bool = False
    """Whether it runs only where it is enabled, because its reading disturbs jobs."""

    settles: frozenset[str] = frozenset()
    """Families of which each call returns all current findings: a fault of these that it does not
    return has ended, unless it returns ``SourceFailed``."""
