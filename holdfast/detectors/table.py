"""Every detector there is, one row each."""

from collections.abc import Callable
from typing import Final

from holdfast.detectors import gpu_xid
from holdfast.detectors.contract import Detector, Profile

ROWS: Final[tuple[Callable[[Profile], Detector], ...]] = (gpu_xid.build,)


def detectors(profile: Profile) -> tuple[Detector, ...]:
    """All detectors, judging as ``profile`` does."""
    return tuple(build(profile) for build in ROWS)


def log_marks(detectors: tuple[Detector, ...]) -> frozenset[str]:
    """The words of which a line of the kernel log must hold one to concern any detector."""
    return frozenset(mark for detector in detectors for mark in detector.marks)
