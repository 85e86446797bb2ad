"""HyperPod's labels of a node, from its record.

A module of its own because lists read it, and must not load all actions for it.
"""

from holdfast.model.deep_checks import Outcome
from holdfast.model.health import Remedy
from holdfast.model.names import Condition, DeepCheckStatus, HealthStatus
from holdfast.model.nodes import NodeRecord, NodeView, Phase


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
