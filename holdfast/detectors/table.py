"""Every detector there is, one row each."""

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from holdfast.detectors import (
    efa_log,
    gpu_driver,
    gpu_sxid,
    gpu_xid,
    host_disk,
    host_hardware,
    host_lockup,
    host_memory,
    infiniband_log,
    neuron_log,
)
from holdfast.detectors.contract import KERNEL_LOG, Detector, Profile

ROWS: Final[tuple[Callable[[Profile], Detector], ...]] = (
    gpu_xid.build,
    gpu_sxid.build,
    gpu_driver.build,
    neuron_log.build,
    efa_log.build,
    infiniband_log.build,
    host_memory.build,
    host_lockup.build,
    host_disk.build,
    host_hardware.build,
)


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
