"""Which findings are but consequences of a fault: one broken part makes many others complain."""

from datetime import timedelta
from typing import Final

from holdfast.detectors import gpu_driver, gpu_sxid, gpu_xid
from holdfast.model.health import Fault, Finding
from holdfast.model.names import Reason

WITHIN: Final = timedelta(seconds=15)
"""Of the fault, before or after: when a GPU falls off the bus, the switches that it was wired to
report it within 12 s (gpud, documentation of SXid 20034), and a log is not always in order."""

_OF_LOST_GPU: Final = frozenset({gpu_sxid.FAMILY, gpu_driver.FAMILY})
_REASONS_OF_LOST_GPU: Final = frozenset({Reason.PCIE_FATAL, Reason.PCIE_NONFATAL})


def follows(finding: Finding | Fault, fault: Fault) -> bool:
    """Whether ``finding`` tells nothing that ``fault`` does not tell already."""
    at = finding.observed_at if isinstance(finding, Finding) else finding.since
    if fault.family != gpu_xid.FAMILY or abs(at - fault.since) > WITHIN:
        return False
    if fault.remedy.touches_node and finding.reason == Reason.XID_ECHO:
        return True
    return fault.code == gpu_xid.FALLEN_OFF_BUS and (
        finding.family in _OF_LOST_GPU or finding.reason in _REASONS_OF_LOST_GPU
    )
