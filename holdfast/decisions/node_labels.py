"""HyperPod's labels of a node and whether it is in service, from its record.

A module of its own because lists read it, and must not load all actions for it.
"""

from typing import Final

from holdfast.model.deep_checks import Outcome
from holdfast.model.health import Remedy
from holdfast.model.names import Condition, DeepCheckStatus, HealthStatus, Reason
from holdfast.model.nodes import NodeRecord, NodeView, Phase

OUT_OF_SERVICE: Final = frozenset({Phase.DRAINING, Phase.REBOOTING, Phase.REPLACING})
"""Phases in which Holdfast has taken a node out of service, whatever else applies."""


def is_out_of_service(record: NodeRecord) -> bool:
    """Return whether the node counts against the budget: from drain to release.

    A borrowed test peer does not count: it had no job, and nothing is repaired.
    """
    if is_borrowed(record):
        return False
    if record.phase in OUT_OF_SERVICE:
        return True
    return record.remediation is not None and record.phase in (Phase.JOINING, Phase.CHECKING)


def is_borrowed(record: NodeRecord) -> bool:
    """Return whether a node without jobs was taken as a test peer of another node."""
    return record.remediation is not None and record.remediation.reason == Reason.DEEP_CHECK_PARTNER


def health_status(record: NodeRecord, *, is_closed: bool = False) -> HealthStatus | None:
    """Return the value of HyperPod's health label in this state; None where HyperPod sets none.

    Args:
        record: record of the node.
        is_closed: whether someone other than Holdfast made the node unschedulable.

    """
    if record.phase is Phase.SCHEDULABLE:
        return HealthStatus.UNSCHEDULABLE if is_closed else HealthStatus.SCHEDULABLE
    remediation = record.remediation
    if record.phase is Phase.JOINING and remediation is None:
        return None
    if record.phase in (Phase.JOINING, Phase.CHECKING) or remediation is None:
        return HealthStatus.UNSCHEDULABLE
    if remediation.remedy is Remedy.REPLACE:
        return HealthStatus.PENDING_REPLACEMENT
    return (
        HealthStatus.PENDING_REBOOT
        if remediation.remedy is Remedy.REBOOT
        else HealthStatus.UNSCHEDULABLE
    )


def deep_check_status(node: NodeView) -> DeepCheckStatus | None:
    """Return the value of HyperPod's deep health check label; None before any check."""
    record = node.record
    if record.phase is Phase.CHECKING:
        return DeepCheckStatus.IN_PROGRESS
    if _is_failed_machine(record):
        return DeepCheckStatus.FAILED
    if record.checked_machine == node.machine:
        return DeepCheckStatus.PASSED
    last = record.checks[-1].outcome if record.checks else None
    return DeepCheckStatus.SKIPPED if last in (Outcome.SKIPPED, Outcome.UNKNOWN) else None


def _is_failed_machine(record: NodeRecord) -> bool:
    if record.remediation is None or record.remediation.condition != Condition.DEEP_CHECK:
        return False
    return record.phase is not Phase.JOINING  # there it is that of the previous machine
