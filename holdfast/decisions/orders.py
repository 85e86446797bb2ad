"""Orders to the machine provider: when each is due, repeated or given up."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from holdfast.decisions.faults import has_joined, observed_deadline
from holdfast.decisions.ladder import is_repeat_offender
from holdfast.decisions.lifecycle import machine_ordered_on
from holdfast.decisions.policy import RecoveryMode, RemediationPolicy
from holdfast.decisions.provider_timeouts import due_at
from holdfast.model.actions import NodeAction, Reboot, Rejoin, Replace, Wait
from holdfast.model.health import Remedy
from holdfast.model.names import Condition, Reason
from holdfast.model.nodes import NodeView, Remediation
from holdfast.model.requests import Verb

DEFERRED_BY_MODE: Final = "node recovery is set to None"


def drain_time(node: NodeView, remediation: Remediation, policy: RemediationPolicy) -> timedelta:
    """Return how long the jobs of a node may take to leave it.

    Where neither the agent nor the scheduler's daemon responds, nothing on the node carries out a
    drain, so the repair is ordered at once: it ends what still runs. Where there is no such daemon,
    a node with a silent agent may still work.
    """
    if remediation.condition != Condition.NODE_LOST:
        return policy.drain_timeout
    if node.answered_at is not None and node.is_ready is False:
        return timedelta(0)
    return min(policy.drain_timeout, policy.heartbeat_timeout)


def decide_rebooting(node: NodeView, policy: RemediationPolicy, now: datetime) -> NodeAction | Wait:
    """Return the action for a node whose reboot was, or may have been, ordered."""
    remediation = remediation_of(node)
    if node.machine != remediation.machine and has_joined(node):
        return Rejoin(node=node.name)
    if node.request is not None and node.request.verb is Verb.REPLACE:
        order = replacement(node, Reason.REQUESTED_REPLACE, policy, now)
        return replace(order, request_id=node.request.id)
    if remediation.remedy is not Remedy.REPLACE:  # else the provider has no such machine
        deadline = due_at(node.record, policy)
        is_automatic = policy.node_recovery is RecoveryMode.AUTOMATIC
        is_refused = is_automatic and _is_refused_for_good(node, policy, now)
        if deadline is None and node.machine != remediation.machine:  # the order was carried out
            last_try = max(node.record.phase_since, remediation.retry_at or node.record.phase_since)
            deadline = last_try + policy.reboot_timeout
        if deadline is None and not is_refused:
            return _again(remediation, Reboot(node=node.name), now)
        if deadline is not None:
            deadline = observed_deadline(node, deadline, policy.reboot_timeout)
            if now < deadline:
                return Wait(until=deadline)
    if policy.node_recovery is RecoveryMode.NONE:
        return Wait(until=None, why=f"the node did not rejoin after its reboot; {DEFERRED_BY_MODE}")
    return replacement(node, remediation.reason, policy, now)


def decide_replacing(node: NodeView, policy: RemediationPolicy, now: datetime) -> NodeAction | Wait:
    """Return the action for a node whose replacement was, or may have been, ordered."""
    remediation = remediation_of(node)
    if node.provider_id != machine_ordered_on(remediation):
        return Rejoin(node=node.name)
    order = replacement(node, remediation.reason, policy, now)
    deadline = due_at(node.record, policy)
    if deadline is None:
        return _again(remediation, order, now)
    deadline = observed_deadline(node, deadline, policy.replace_timeout)
    return Wait(until=deadline) if now < deadline else order


def _is_refused_for_good(node: NodeView, policy: RemediationPolicy, now: datetime) -> bool:
    """Return whether a provider has refused a reboot for as long as a reboot may take."""
    timeout = policy.reboot_timeout
    deadline = observed_deadline(node, node.record.phase_since + timeout, timeout)
    return remediation_of(node).retry_at is not None and now >= deadline


def _again(remediation: Remediation, order: Reboot | Replace, now: datetime) -> NodeAction | Wait:
    if remediation.retry_at is not None and now < remediation.retry_at:
        return Wait(until=remediation.retry_at)
    return order


def replacement(node: NodeView, reason: str, policy: RemediationPolicy, now: datetime) -> Replace:
    """Return the replacement order, with whether this machine is a repeat offender."""
    return Replace(
        node=node.name,
        reason=reason,
        repeat_offender=remediation_of(node).condition != Condition.REQUESTED
        and is_repeat_offender(node, policy, now),
    )


def remediation_of(node: NodeView) -> Remediation:
    """Return the remediation of a node that has one.

    Raises:
        ValueError: the node has none, so its record is damaged.

    """
    if node.record.remediation is None:
        raise ValueError(
            f"{node.name} is {node.record.phase} without a remediation: its record is damaged"
        )
    return node.record.remediation


def has_request(node: NodeView, verb: Verb) -> bool:
    """Return whether a person has made a request of this kind for the node."""
    return node.request is not None and node.request.verb is verb
