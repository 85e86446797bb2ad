"""Every detector there is, one row each."""

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from holdfast.detectors import gpu_xid
from holdfast.detectors.contract import KERNEL_LOG, Detector, Profile

ROWS: Final[tuple[Callable[[Profile], Detector], ...]] = (gpu_xid.build,)


def detectors(profile: Profile) -> tuple[Detector, ...]:
    """All detectors, judging as ``profile`` does."""
    return tuple(build(profile) for build in ROWS)


def log_marks(detectors: tuple[Detector, ...]) -> frozenset[str]:
    """The words of which a line of the kernel log must hold one to concern any detector."""
    return frozenset(mark for detector in detectors for mark in detector.marks)


def samples_wanted(detectors: tuple[Detector, ...]) -> dict[str, timedelta]:
    """Which samples the detectors read, and how often each is to be taken."""
    wanted: dict[str, timedelta] = {}
    for detector in detectors:
        for name in sorted(detector.reads - {KERNEL_LOG}):
            wanted[name] = min(wanted.get(name, detector.every), detector.every)
    return wanted
