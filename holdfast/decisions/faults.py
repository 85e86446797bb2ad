"""Faults of a node: reported by its agent, inferred from its silence, or requested by a person."""

from datetime import datetime, timedelta
from typing import Final

from holdfast.decisions.policy import RemediationPolicy, SilentAgentAction
from holdfast.kit.units import format_duration
from holdfast.model.health import Fault, Remedy, Severity, Urgency
from holdfast.model.names import Condition, Reason
from holdfast.model.nodes import NodeView, Phase, Remediation
from holdfast.model.requests import Request, Verb

_REQUESTED: Final = {
    Verb.REBOOT: (Reason.REQUESTED_REBOOT, Remedy.REBOOT),
    Verb.REPLACE: (Reason.REQUESTED_REPLACE, Remedy.REPLACE),
    Verb.DEEP_CHECK: (Reason.REQUESTED_DEEP_CHECK, Remedy.NONE),
}

IN_REPAIR: Final = frozenset({Phase.REBOOTING, Phase.REPLACING})
"""Phases in which the machine is expected to be silent."""


_COMING: Final = frozenset({Phase.JOINING, Phase.CHECKING})

START_FAILED: Final = timedelta(minutes=2)
"""Time for a node to join although its platform has given up on it. The same boot starts the agent
and the scheduler's daemon, one a little later than the other."""


AFTER_OUTAGE: Final = timedelta(minutes=5)
"""Time for a node to report after an outage of its platform: kubelets reconnect within a minute and
then start the agent of a node that has booted meanwhile."""


def observed_deadline(node: NodeView, due_at: datetime, timeout: timedelta) -> datetime:
    """Return a deadline, later if an outage of the platform may have kept back what it waits for.

    Args:
        node: the node.
        due_at: the deadline without an outage.
        timeout: time that the node, its jobs or its provider have until that deadline.

    """
    if node.observed_since is None:
        return due_at
    return max(due_at, node.observed_since + min(timeout, AFTER_OUTAGE))


def node_faults(node: NodeView, policy: RemediationPolicy, now: datetime) -> tuple[Fault, ...]:
    """Return the faults that need an action on the node, worst first, without people's requests."""
    faults = [
        fault for fault in node.faults if fault.remedy.touches_node and not _forgiven(node, fault)
    ]
    lost = lost_fault(node, policy, now)
    if lost is not None:
        faults.append(lost)
    silent = agent_fault(node, policy, now)
    if silent is not None and _counts(node, silent, policy):
        faults.append(silent)
    return tuple(sorted(faults, key=_worst_first))


def lost_fault(node: NodeView, policy: RemediationPolicy, now: datetime) -> Fault | None:
    """Return the fault of a powered-off or silent node; None if it responds or may be silent."""
    if node.record.phase in IN_REPAIR:
        return None
    remediation = node.record.remediation
    if node.powered_on is False:
        return _fault(
            Condition.NODE_LOST,
            Reason.NODE_POWERED_OFF,
            policy.silent_remedy,
            node.heartbeat_at or (now if remediation is None else remediation.opened_at),
            "the machine is powered off",
        )
    if remediation is not None and _is_silent_since_lost(node, remediation):
        return _fault(
            Condition.NODE_LOST,
            Reason(remediation.reason),
            remediation.remedy,
            remediation.opened_at,
            "the node's agent has not reported since the node was lost",
        )
    deadline = silent_at(node, policy)
    if deadline is None or now < deadline:
        return None
    if not has_joined(node) and node.record.phase is Phase.JOINING:
        return _unjoined(node, deadline)
    return _fault(
        Condition.NODE_LOST,
        Reason.NODE_SILENT,
        policy.silent_remedy,
        deadline,
        f"no heartbeat of the node for {format_duration(policy.heartbeat_timeout)}",
    )


def _unjoined(node: NodeView, since: datetime) -> Fault:
    is_agent = node.heartbeat_at is None
    missing = "agent has not reported" if is_agent else "kubelet or slurmd is not ready"
    why = node.join_error or f"the node's {missing} since the node appeared"
    reason = Reason.NODE_START_FAILED if node.join_error else Reason.NODE_NEVER_JOINED
    return _fault(Condition.NODE_LOST, reason, Remedy.REPLACE, since, why)


def _is_silent_since_lost(node: NodeView, remediation: Remediation) -> bool:
    """Return whether a lost node is not proven to work: a scheduler's daemon alone is no proof."""
    is_marked = node.record.phase in (Phase.QUARANTINED, Phase.DRAINING)
    if not is_marked or remediation.condition != Condition.NODE_LOST:
        return False
    if node.heartbeat_at is None:
        return True
    return node.answered_at is not None and node.heartbeat_at <= remediation.opened_at


def has_joined(node: NodeView) -> bool:
    """Return whether the agent and the scheduler's daemon have both reported in this boot."""
    return node.heartbeat_at is not None and node.is_ready is not False


def silent_at(node: NodeView, policy: RemediationPolicy) -> datetime | None:
    """Return when the node counts as lost without a new report; None while it may be silent."""
    if node.record.phase in IN_REPAIR:
        return None
    if node.record.phase is Phase.JOINING and not has_joined(node):
        is_refused = bool(node.join_error)
        timeout = min(policy.join_timeout, START_FAILED) if is_refused else policy.join_timeout
        return observed_deadline(node, node.record.phase_since + timeout, timeout)
    last, answered = node.heartbeat_at, node.answered_at
    if last is None or (answered is not None and answered > last):
        last = answered
    return (node.record.phase_since if last is None else last) + policy.heartbeat_timeout


def agent_silent_at(node: NodeView, policy: RemediationPolicy) -> datetime | None:
    """Return when the agent alone counts as silent without a new report; None if that is unknown.

    A node that has not joined yet has until ``join_timeout``; see ``silent_at``.
    """
    phase, since = node.record.phase, node.record.phase_since
    if node.answered_at is None or phase in IN_REPAIR:
        return None
    if phase is Phase.JOINING and not has_joined(node):
        return None
    if node.heartbeat_at is not None:
        return node.heartbeat_at + policy.heartbeat_timeout
    return since + policy.heartbeat_timeout if phase is Phase.SCHEDULABLE else since


def agent_fault(node: NodeView, policy: RemediationPolicy, now: datetime) -> Fault | None:
    """Return the fault of a node whose agent is silent while its scheduler's daemon responds.

    The daemon has to respond once after the deadline of the agent: on a machine that has lost power
    both stop at the same time, and the later last report does not prove that the machine is up.
    """
    silent_since = agent_silent_at(node, policy)
    if silent_since is None or now < silent_since:
        return None
    answers_until = silent_at(node, policy)
    if answers_until is None or now >= answers_until:
        return None
    if node.answered_at is None or node.answered_at < silent_since:
        return None
    return _fault(
        Condition.AGENT_SILENT,
        Reason.AGENT_SILENT,
        Remedy.NONE,
        silent_since,
        f"kubelet or slurmd responds, but the Holdfast agent has not reported for"
        f" {format_duration(policy.heartbeat_timeout)}: faults of the node are not detected",
        urgency=Urgency.DEFERRED,
    )


def _counts(node: NodeView, silent: Fault, policy: RemediationPolicy) -> bool:
    """Return whether a silent agent calls for more than a condition and an event.

    A running deep health check ends first: it does not need the agent.
    """
    if policy.silent_agent_action is SilentAgentAction.WARN:
        return False
    return node.record.phase is not Phase.CHECKING and not _forgiven(node, silent)


def check_ends_at(node: NodeView, policy: RemediationPolicy) -> datetime:
    """Return the time limit of a node's own deep health check."""
    timeout = policy.deep_check_timeout
    due_at = (node.check_began_at or node.record.phase_since) + timeout
    return observed_deadline(node, due_at, timeout)


def check_fault(node: NodeView, policy: RemediationPolicy, now: datetime) -> Fault | None:
    """Return the fault of a node whose own deep health check failed, or began and never ended."""
    if node.record.phase is not Phase.CHECKING or node.record.pairing is not None:
        return None
    if node.check is not None and not node.check.passed:
        return _fault(
            Condition.DEEP_CHECK,
            Reason.CHECK_FAILED,
            Remedy.REPLACE,
            node.check.ended_at,
            node.check.detail,
        )
    deadline = check_ends_at(node, policy)
    if node.check is None and not node.check_pending and now >= deadline:
        return _fault(
            Condition.DEEP_CHECK,
            Reason.CHECK_NEVER_ENDED,
            Remedy.REPLACE,
            deadline,
            "the deep health check did not report back in time",
        )
    return None


def offender_fault(node: NodeView, offenders: frozenset[str]) -> Fault | None:
    """Return the fault of a machine that was rejected as a repeat offender and has returned."""
    if node.provider_id not in offenders or node.record.phase not in _COMING:
        return None
    return _fault(
        Condition.REPEAT_OFFENDER,
        Reason.REPEAT_OFFENDER,
        Remedy.REPLACE,
        node.record.phase_since,
        f"the machine {node.provider_id} was replaced before because it kept faulting",
    )


def request_fault(request: Request) -> Fault | None:
    """Return a person's request as a fault; None for a release, which is no fault."""
    if request.verb is Verb.RELEASE:
        return None
    reason, remedy = _REQUESTED[request.verb]
    by = f" by {request.requested_by}" if request.requested_by else ""
    why = f": {request.why}" if request.why else ""
    return _fault(
        Condition.REQUESTED,
        request.reason or reason,
        remedy,
        request.requested_at,
        f"{request.verb} requested{by}{why}",
        urgency=request.urgency,
    )


def app_restart_since(node: NodeView, since: datetime) -> Fault | None:
    """Return the newest fault since ``since`` whose remedy is a restart of the application only."""
    restarts = [
        fault
        for fault in node.faults
        if fault.remedy is Remedy.RESTART_APP and fault.since >= since
    ]
    return max(restarts, key=lambda fault: fault.since) if restarts else None


def _forgiven(node: NodeView, fault: Fault) -> bool:
    """Return whether a person released the node after the last report of the fault."""
    cleared_at = node.record.cleared_at
    return cleared_at is not None and (fault.seen_at or fault.since) <= cleared_at


def _worst_first(fault: Fault) -> tuple[int, bool, datetime, str]:
    return (-fault.remedy.strength, fault.urgency is Urgency.DEFERRED, fault.since, fault.reason)


def _fault(
    condition: Condition,
    reason: Reason,
    remedy: Remedy,
    since: datetime,
    message: str,
    *,
    urgency: Urgency = Urgency.IMMEDIATE,
) -> Fault:
    return Fault(
        family="node",
        condition=condition,
        reason=reason,
        severity=Severity.FATAL,
        remedy=remedy,
        message=message,
        since=since,
        urgency=urgency,
    )
