"""State of the host's memory: exhausted, stalled, or corrupted.

Of ``vmstat`` only the number of OOM kills counts: stalls and reclaim are normal on a busy host, and
the pressure shows how much work waits for them.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Final

from holdfast.detectors.contract import Detector, Profile, Sample
from holdfast.detectors.judgement import (
    Judgement,
    counter,
    host_finding,
    rise,
    state_detector,
    undecided,
    whole,
)
from holdfast.detectors.state_reasons import deferred, fault, note
from holdfast.model.health import Finding, Remedy, Severity, Urgency
from holdfast.model.names import Condition, Reason

FAMILY: Final = "memory-state"
EVERY: Final = timedelta(seconds=30)
EVENTS: Final = "memory-event"

LEAST_KIB: Final = 100 * 1024
"""Minimum of available memory, 100 MiB, as in gpud."""

STALLED_PERCENT: Final = 20.0
"""Share of a minute in which all tasks were stalled on memory; a healthy host has next to 0."""

# fmt: off
STATE_REASONS: Final = (
    note(FAMILY, Reason.MEMORY_EXHAUSTED, "`/proc/meminfo`: less than 100 MiB are available; gpud"),
    note(FAMILY, Reason.MEMORY_PRESSURE, "`/proc/pressure/memory`: all tasks are stalled for "
        "a fifth of a minute"),
    note(EVENTS, Reason.OOM_KILLING, "`/proc/vmstat`: `oom_kill` rose"),
    fault(EVENTS, Reason.MEMORY_CORRUPTED, Remedy.REPLACE, "sysfs: `memory_failure/total` rose; "
        "before Linux 6.3, `/proc/meminfo`: `HardwareCorrupted` rose and no memory controller "
        "counts errors; AWS's runbook"),
    deferred(EVENTS, Reason.MEMORY_CORRUPTED, Remedy.REPLACE, "`/proc/meminfo`: before Linux 6.3, "
        "`HardwareCorrupted` rose; uncorrected errors are a fault of the memory controller"),
    note(EVENTS, Reason.MEMORY_READ_ERROR, "`/proc/meminfo`: `HardwareCorrupted` rose, and "
        "`memory_failure/total` did not; mm/memory-failure.c"),
)
# fmt: on


def build(_profile: Profile) -> Detector:
    """Return the detector; all profiles agree on it."""
    return state_detector(
        "memory-state", _judge, STATE_REASONS, reads="memory", settles={FAMILY}, every=EVERY
    )


def _judge(sample: Sample) -> Judgement:
    available = counter(sample.values.get("MemAvailable"))
    if available is None:
        return undecided("meminfo has no MemAvailable")
    return whole(_findings(sample, available))


def _findings(sample: Sample, available: int) -> Iterator[Finding]:
    if available < LEAST_KIB:
        why = f"MemAvailable is {available} KiB"
        yield host_finding(sample, FAMILY, Reason.MEMORY_EXHAUSTED, why)
    stalled = _percent(sample.values.get("full/avg60", ""))
    if stalled is not None and stalled >= STALLED_PERCENT:
        why = f"all tasks were stalled on memory for {stalled:g} % of the last minute"
        yield host_finding(sample, FAMILY, Reason.MEMORY_PRESSURE, why)
    if by := rise(sample, "oom_kill"):
        why = f"the kernel killed {by} processes because memory was exhausted"
        yield host_finding(sample, EVENTS, Reason.OOM_KILLING, why)
    yield from _corrupted(sample)


def _corrupted(sample: Sample) -> Iterator[Finding]:
    """Yield the finding of memory that the kernel has retired.

    It also retires pages whose errors were all corrected ("soft offline"), which loses no data and
    raises ``HardwareCorrupted`` as well.
    """
    if by := rise(sample, "memory_failures"):
        yield _corruption(sample, f"{by} pages of memory have uncorrected errors")
    elif by := rise(sample, "HardwareCorrupted"):
        why = f"the kernel retired {by} KiB of bad memory"
        if "memory_failures" in sample.before:
            # Its own reason, for a notice would end a fault of the same one.
            why = f"{why} after corrected errors"
            yield host_finding(sample, EVENTS, Reason.MEMORY_READ_ERROR, why)
        elif "edac" in sample.values:  # whose ``ue_count`` is the fault if they were uncorrected
            found = _corruption(sample, why)
            yield replace(found, severity=Severity.WARNING, urgency=Urgency.DEFERRED)
        else:
            yield _corruption(sample, why)


def _corruption(sample: Sample, why: str) -> Finding:
    return host_finding(
        sample, EVENTS, Reason.MEMORY_CORRUPTED, why,
        condition=Condition.HOST_HARDWARE, severity=Severity.FATAL, remedy=Remedy.REPLACE,
    )  # fmt: skip


def _percent(text: str) -> float | None:
    try:
        return float(text[:20])
    except ValueError:
        return None
