"""Relations between findings: which are only consequences of a fault.

XID 154 is the reverse case: it follows the error that it is about, and carries the driver's
recovery action for that error. So it decides: its remedy replaces those of other XIDs of that GPU,
be it milder or stronger.
"""

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timedelta
from itertools import product
from typing import Final

from holdfast.detectors import gpu_dcgm_policy, gpu_driver, gpu_sxid, gpu_xid, host_hardware
from holdfast.model.health import Fault, Finding
from holdfast.model.names import Reason

WITHIN: Final = timedelta(seconds=15)
"""Maximum time before or after the fault: when a GPU falls off the bus, the switches that it was
wired to report it within 12 s (gpud, documentation of SXid 20034), and a log is not always in
order."""

_OF_LOST_GPU: Final = frozenset({gpu_sxid.FAMILY, gpu_driver.FAMILY})
_REASONS_OF_LOST_GPU: Final = frozenset(
    {Reason.PCIE_FATAL, Reason.PCIE_NONFATAL, Reason.PCIE_CONTAINED}
)


CAUSE: Final = gpu_xid.FAMILY
"""Family of all faults from which others follow."""

CONSEQUENCES: Final = (
    gpu_dcgm_policy.FAMILY,
    gpu_sxid.FAMILY,
    gpu_driver.FAMILY,
    host_hardware.FAMILY,
)
"""Other families with faults that follow from one."""


def causes_of(finding: Finding | Fault) -> tuple[str, str | None] | None:
    """Return where to look for causes of ``finding``: a family, and a device or None for all.

    None if it never follows from anything.
    """
    if finding.family == CAUSE and finding.reason != Reason.XID_ECHO:
        return (CAUSE, finding.device)
    is_consequence = finding.family in CONSEQUENCES or finding.reason == Reason.XID_ECHO
    return (CAUSE, None) if is_consequence else None


def follows(finding: Finding | Fault, fault: Fault) -> bool:
    """Return whether ``finding`` is only a consequence of ``fault``."""
    if decides(fault, finding):
        return True
    codes = (fault.code, *fault.decides)
    if fault.family != CAUSE or not _may_follow(finding, fault, codes):
        return False
    return _are_close([next(moments(finding))], moments(fault))


def _may_follow(finding: Finding | Fault, fault: Fault, codes: Collection[int | None]) -> bool:
    if finding.family == gpu_dcgm_policy.FAMILY and finding.code in codes:
        return True  # the same XID by DCGM, which names no GPU
    if fault.remedy.touches_node and finding.reason == Reason.XID_ECHO:
        return True
    return gpu_xid.FALLEN_OFF_BUS in codes and (
        finding.family in _OF_LOST_GPU or finding.reason in _REASONS_OF_LOST_GPU
    )


def decides(fault: Fault, finding: Finding | Fault) -> bool:
    """Return whether ``fault`` is the driver's recovery action for ``finding``."""
    return (
        fault.family == finding.family == gpu_xid.FAMILY
        and fault.device == finding.device
        and fault.code == gpu_xid.RECOVERY_ACTION
        and finding.remedy.touches_node
        and _are_close(moments(finding), moments(fault))
    )


def _are_close(some: Iterable[datetime], others: Iterable[datetime]) -> bool:
    return any(abs(at - then) <= WITHIN for at, then in product(some, others))


def moments(finding: Finding | Fault) -> Iterator[datetime]:
    """Yield the known times of a finding: for an event, its first and its last occurrence."""
    if isinstance(finding, Finding):
        yield finding.observed_at
    else:
        yield finding.since
        if finding.seen_at is not None:
            yield finding.seen_at
