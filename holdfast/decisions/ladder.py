"""Remedy for a fault, given which remedies helped this machine before."""

from datetime import datetime

from holdfast.decisions.lifecycle import machine_ordered_on
from holdfast.decisions.policy import RemediationPolicy
from holdfast.model.health import Fault, Remedy
from holdfast.model.names import Condition
from holdfast.model.nodes import NodeView


def remedy_for(node: NodeView, fault: Fault, policy: RemediationPolicy, now: datetime) -> Remedy:
    """Return the remedy for ``fault`` on ``node``, at least as strong as the fault requires.

    A GPU reset is carried out as a reboot of its node. A fault within the reboot window after a
    reboot, and a fault of a repeat offender, lead to a replacement. A person's request is carried
    out as requested, and a silent agent gets no repair of its machine.
    """
    is_as_stated = fault.condition in (Condition.REQUESTED, Condition.AGENT_SILENT)
    if is_as_stated or fault.remedy is Remedy.REPLACE:
        return fault.remedy
    if is_repeat_offender(node, policy, now) or _reboot_did_not_help(node, policy, now):
        return Remedy.REPLACE
    return Remedy.REBOOT


def is_repeat_offender(node: NodeView, policy: RemediationPolicy, now: datetime) -> bool:
    """Return whether this machine has faulted too often, its present fault included."""
    earlier = sum(now - past.opened_at <= policy.offender_window for past in node.record.history)
    return earlier + 1 >= policy.offender_faults


def _reboot_did_not_help(node: NodeView, policy: RemediationPolicy, now: datetime) -> bool:
    remediation = node.record.remediation
    if remediation is not None and machine_ordered_on(remediation) == node.provider_id:
        return True  # only a reboot leaves the machine here
    return any(
        past.remedy is Remedy.REBOOT and now - past.closed_at <= policy.reboot_window
        for past in node.record.history
    )
