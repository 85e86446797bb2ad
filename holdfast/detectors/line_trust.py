"""Decides which log lines count as written by the kernel, and what the others can lead to.

A repair destroys work, so only the kernel may cause one by a log line alone. Every process with
the right to write to ``/dev/kmsg``, every local user through syslog, and every container with a
Neuron device can place lines that look like those of a driver.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final

from holdfast.detectors.contract import KERNEL_LOG, Detector, LogLine, Origin, Readings
from holdfast.detectors.kernel_log import KERN, USER
from holdfast.detectors.neuron_log import FAMILY as NEURON
from holdfast.detectors.neuron_log import KEYWORD as NEURON_KEYWORD
from holdfast.model.health import Finding, Remedy

LONGEST_DRILL: Final = timedelta(hours=1)
"""While a drill is active, any local user can have the node repaired."""

_CLOCK_DRIFT: Final = timedelta(minutes=5)
"""The clock of kernel messages is not corrected by NTP: a line of a drill may appear to be older
than the drill."""

_LONGEST_BOOT: Final = timedelta(minutes=20)
"""Time from the boot to the start of an agent that is installed; as ``join_timeout`` of the policy,
since machines with many accelerators boot for 10 to 15 minutes."""


def trusted_since(booted_at: datetime | None, first_start: datetime) -> datetime | None:
    """Return the time from which kernel lines are evidence alone; None if all of this boot are.

    An agent that first starts long after the boot was installed on a running machine, which
    others maintained: the fault in an old line may have been repaired since.

    Args:
        booted_at: time of the boot; None if unknown.
        first_start: time at which an agent was first started in this boot.

    """
    if booted_at is None or first_start - booted_at <= _LONGEST_BOOT:
        return None
    return first_start - _CLOCK_DRIFT


def record_origin(facility: int | None) -> Origin:
    """Return the writer of a record of ``/dev/kmsg`` or of journald's kernel transport.

    Args:
        facility: as in ``KernelLine.facility``; without one the line is no such record.

    """
    if facility == KERN:
        return Origin.KERNEL
    return Origin.USER if facility == USER else Origin.FILE


@dataclass(frozen=True, slots=True, kw_only=True)
class LineTrust:
    """The trust of one node in the lines of its logs."""

    corroboration_window: timedelta
    """Longest time between a line that may be forged and the reading that corroborates it."""

    drill_until: datetime | None = None
    """End of the drill, in which the lines of all origins count; None without a drill."""

    trusted_since: datetime | None = None
    """Time before which lines of the kernel need corroboration, too; None if none does."""

    neuron_counters: frozenset[str] = frozenset()
    """Devices, such as ``nd3``, whose error counters of the Neuron driver are read; every real
    hardware error that the Neuron runtime logs increases one."""

    def applied(self, detector: Detector) -> Detector:
        """Return ``detector`` with findings that depend on who wrote their lines."""
        if KERNEL_LOG not in detector.reads:
            return detector

        def detect(readings: Readings) -> list[Finding]:
            return [
                self._rated(finding, origin)
                for origin, part in self._parts(readings)
                for finding in detector.detect(part)
            ]

        return replace(detector, detect=detect)

    def _parts(self, readings: Readings) -> Iterator[tuple[Origin, Readings]]:
        """Neighboring lines of one origin; all samples are in the first part of the kernel's."""
        if all(line.origin is Origin.KERNEL for line in readings.kernel_log):
            yield Origin.KERNEL, readings
            return
        samples = readings.samples
        for origin, lines in groupby(readings.kernel_log, key=self._origin):
            is_first = origin is Origin.KERNEL and samples is readings.samples
            yield origin, Readings(kernel_log=tuple(lines), samples=samples if is_first else {})
            samples = {} if is_first else samples
        if samples:
            yield Origin.KERNEL, Readings(samples=samples)

    def _origin(self, line: LogLine) -> Origin:
        until = self.drill_until
        is_drill = until is not None and (
            until - LONGEST_DRILL - _CLOCK_DRIFT <= line.observed_at <= until
        )
        return Origin.KERNEL if is_drill else line.origin

    def _rated(self, finding: Finding, origin: Origin) -> Finding:
        if origin is Origin.USER:
            why = f"ignored without a drill, not written by the kernel: {finding.message}"
            finding = replace(finding, remedy=Remedy.NONE, message=why)
        elif origin is Origin.KERNEL and not self._is_forgeable(finding):
            return self._dated(finding)
        finding = replace(finding, corroborated_within=self.corroboration_window)
        is_counted = not self.neuron_counters or finding.device in self.neuron_counters
        if finding.family == NEURON and not is_counted:
            # Forged lines that name thousands of devices would leave no place for a real suspect.
            return replace(finding, device="")
        return finding

    def _dated(self, finding: Finding) -> Finding:
        """Return a finding of the kernel; the agent's first readings corroborate an old one."""
        since = self.trusted_since
        if since is None or finding.observed_at >= since:
            return finding
        within = since - finding.observed_at + _CLOCK_DRIFT + self.corroboration_window
        return replace(finding, corroborated_within=within)

    def _is_forgeable(self, finding: Finding) -> bool:
        """Whether a container with a Neuron device can make the driver log the message."""
        return (
            bool(self.neuron_counters)
            and finding.family == NEURON
            and NEURON_KEYWORD in finding.message
        )
