"""Local file systems: full, without inodes, or made read-only by the kernel."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from holdfast.detectors.contract import Detector, Profile, Sample
from holdfast.detectors.judgement import Judgement, host_finding, state_detector, whole
from holdfast.detectors.state_reasons import fault, note
from holdfast.model.health import Finding, Remedy, Severity
from holdfast.model.names import Condition, Reason

FAMILY: Final = "disk-state"
EVERY: Final = timedelta(minutes=1)

LEAST_PERCENT: Final = 5.0
"""Minimum free share of space or inodes; the kubelet starts to evict at 10 % and 5 %."""

# fmt: off
STATE_REASONS: Final = (
    fault(FAMILY, Reason.READONLY_FILESYSTEM, Remedy.REBOOT, "`/proc/self/mountinfo`: a file "
        "system that was writable is read-only; gpud"),
    note(FAMILY, Reason.DISK_FULL, "`statvfs`: less than 5 % of the space is free"),
    note(FAMILY, Reason.INODES_EXHAUSTED, "`statvfs`: less than 5 % of the inodes are free"),
)
# fmt: on


def build(_profile: Profile) -> Detector:
    """Return the detector; all profiles agree on it."""
    return state_detector(
        "disk-state", _judge, STATE_REASONS, reads="disks", settles={FAMILY}, every=EVERY
    )


def _judge(sample: Sample) -> Judgement:
    return whole(_findings(sample))


def _findings(sample: Sample) -> Iterator[Finding]:
    for name, text in sample.values.items():
        mount, _, kind = name.rpartition("/")
        where = mount or "/"
        if kind == "options" and _turned_read_only(sample, name):
            why = f"the file system of {where} was writable in this boot and is read-only now"
            yield host_finding(
                sample, FAMILY, Reason.READONLY_FILESYSTEM, why, device=where,
                condition=Condition.READONLY_FILESYSTEM,
                severity=Severity.FATAL, remedy=Remedy.REBOOT,
            )  # fmt: skip
        if kind == "free" and _is_little(text):
            why = f"{text} % of the space of {where} is free"
            yield host_finding(sample, FAMILY, Reason.DISK_FULL, why, device=where)
        if kind == "inodes" and _is_little(text):
            why = f"{text} % of the inodes of {where} are free"
            yield host_finding(sample, FAMILY, Reason.INODES_EXHAUSTED, why, device=where)


def _turned_read_only(sample: Sample, name: str) -> bool:
    """Return whether a file system became read-only; some are read-only on purpose."""
    mount = name.removesuffix("/options")
    is_read_only = "ro" in sample.values[name].split(",")
    return is_read_only and f"{mount}/writable" in sample.seen


def _is_little(text: str) -> bool:
    try:
        return float(text) < LEAST_PERCENT
    except ValueError:
        return False
