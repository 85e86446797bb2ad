"""Nodes: what to do with each, and what the cluster as a whole allows."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final

from holdfast.decisions.breaker import close, trip
from holdfast.decisions.budget import within_limits
from holdfast.decisions.check_schedule import is_checked_by_policy, next_check_at, scheduled_check
from holdfast.decisions.faults import (
    agent_fault,
    agent_silent_at,
    check_ends_at,
    check_fault,
    has_joined,
    node_faults,
    observed_deadline,
    offender_fault,
    request_fault,
    silent_at,
)
from holdfast.decisions.ladder import remedy_for
from holdfast.decisions.members import shared_machines, unsettled_nodes, waiting_successors
from holdfast.decisions.node_labels import is_borrowed
from holdfast.decisions.orders import (
    DEFERRED_BY_MODE,
    decide_rebooting,
    decide_replacing,
    drain_time,
    has_request,
    remediation_of,
    replacement,
)
from holdfast.decisions.pair_schedule import (
    decide_pairs,
    has_pairs,
    pools_short_of_peers,
    release_borrowed,
)
from holdfast.decisions.planned_work import is_requested_check
from holdfast.decisions.policy import RecoveryMode, RemediationPolicy, SilentAgentAction
from holdfast.decisions.replacement_limit import within_replacement_limit
from holdfast.decisions.requested_checks import POLL, requested_checks
from holdfast.decisions.silent_agents import (
    agent_condition_change,
    is_agent_silent,
    is_checked_since,
    within_silent_limit,
)
from holdfast.decisions.taken_requests import is_request_taken, yields
from holdfast.model.actions import (
    Deferred,
    Drain,
    NodeAction,
    Plan,
    Quarantine,
    Reassign,
    Reboot,
    Release,
    Replace,
    Retire,
    StartCheck,
    Wait,
)
from holdfast.model.deep_checks import Outcome
from holdfast.model.health import Fault, Remedy, Urgency
from holdfast.model.names import Condition
from holdfast.model.nodes import ClusterView, NodeView, Pairing, Phase, Remediation
from holdfast.model.requests import Verb

_DEFERRED_BY_BREAKER: Final = "circuit breaker open"
_NOTHING: Final = Wait(until=None)

_Actions = list[NodeAction]
_Drains = list[tuple[NodeView, Drain]]
_Deferrals = list[Deferred]


def decide(cluster: ClusterView, policy: RemediationPolicy, now: datetime) -> Plan:
    """Return at most one action for each node; the order of ``cluster.nodes`` does not matter."""
    unsettled, wake_at = unsettled_nodes(cluster.nodes, policy, now)
    waiting = waiting_successors(unsettled)
    successors = {old: new for new, old in sorted(waiting.items(), reverse=True)}
    members = [node for node in unsettled if node.name not in waiting]
    tripped = trip(cluster, unsettled, policy, now)
    is_open = tripped is not None or cluster.breaker.tripped_at is not None
    closed, closes_at = close(cluster, policy, now)
    same_machine = shared_machines(members, cluster.nodes, without=waiting)
    actions, drains, deferred = _Actions([]), _Drains([]), _Deferrals([])
    wake_times = [wake_at, *(at for node in members for at in _silent_at(node, policy, now))]
    for node in members:
        if node.name in successors:
            actions.append(Retire(node=node.name, successor=successors[node.name]))
            continue
        choice = _decide_member(node, cluster.offenders, unsettled, policy, now)
        if why := _deferred(node, choice, same_machine, is_open=is_open):
            deferred.append(Deferred(node=node.name, why=why))
        if isinstance(choice, Wait):
            wake_times.append(choice.until)
        elif isinstance(choice, Drain) and not is_borrowed(node.record):
            drains += [] if why else [(node, choice)]
        elif not why:
            actions.append(choice)
    size = len(cluster.nodes) - len(waiting)
    actions, uncordoned = within_silent_limit(actions, members, policy.max_unavailable.of(size))
    pairs = decide_pairs(cluster.nodes, actions, policy, now, size=size, may_borrow=not is_open)
    actions += pairs.actions
    busy = {action.node for action in (*actions, *(drain for _, drain in drains))}
    checks, pending = _planned_checks(members, busy, policy, now, size, is_open=is_open)
    check_at = _earliest(now + POLL if pending else None, next_check_at(cluster.nodes, policy, now))
    rated = within_replacement_limit(actions, drains, cluster.nodes, size, policy, now)
    taken, refused = within_limits([*rated.actions, *checks], rated.drains, members, size, policy)
    return Plan(
        actions=tuple(taken),
        trip=tripped,
        close=closed,
        deferred=_by_node(*deferred, *uncordoned, *pending, *rated.deferred, *refused),
        peer_pools=pools_short_of_peers(unsettled),
        wake_at=_earliest(*wake_times, closes_at, pairs.wake_at, check_at, rated.ends_at),
    )


def _by_node(*deferred: Deferred) -> tuple[Deferred, ...]:
    return tuple(sorted(deferred, key=lambda item: item.node))


def _planned_checks(
    members: Sequence[NodeView],
    busy: Collection[str],
    policy: RemediationPolicy,
    now: datetime,
    size: int,
    *,
    is_open: bool,
) -> tuple[list[Quarantine], list[Deferred]]:
    """Return the requested and scheduled checks that start now, and those that wait."""
    blocked = _DEFERRED_BY_BREAKER if is_open else ""
    taken, waiting = requested_checks(members, busy, policy, size=size, blocked=blocked)
    if not is_open:
        taken += scheduled_check(members, {*busy, *(one.node for one in taken)}, policy, now)
    return taken, waiting


def _deferred(
    node: NodeView,
    choice: NodeAction | Wait,
    same_machine: Mapping[str, Sequence[str]],
    *,
    is_open: bool,
) -> str:
    """Return why the chosen action is deferred; empty if it is taken, or if there is none."""
    if isinstance(choice, Wait):
        return choice.why
    if not isinstance(choice, Drain | Reboot | Replace):
        return ""
    if node.pause_reason:
        return f"repairs paused by an operator: {node.pause_reason}"
    if others := [one for one in same_machine.get(node.provider_id, ()) if one != node.name]:
        return (
            f"{', '.join(others)} has the same provider ID {node.provider_id}, so a repair could"
            " hit the wrong machine; correct the provider ID or delete the wrong node"
        )
    return _DEFERRED_BY_BREAKER if is_open else ""


def decide_node(node: NodeView, policy: RemediationPolicy, now: datetime) -> NodeAction | Wait:
    """Return the action for one node, regardless of the rest of the cluster."""
    match node.record.phase:
        case Phase.JOINING | Phase.CHECKING:
            return _decide_joining(node, policy, now)
        case Phase.SCHEDULABLE:
            return _decide_schedulable(node, policy, now)
        case Phase.QUARANTINED | Phase.DRAINING:
            return _decide_quarantined(node, policy, now)
        case Phase.REBOOTING:
            return decide_rebooting(node, policy, now)
        case Phase.REPLACING:
            return decide_replacing(node, policy, now)


def _decide_member(
    node: NodeView,
    offenders: frozenset[str],
    unsettled: Sequence[NodeView],
    policy: RemediationPolicy,
    now: datetime,
) -> NodeAction | Wait:
    returned = offender_fault(node, offenders)
    if returned is not None:
        return _quarantine(node, returned, policy, now)
    choice = release_borrowed(node, unsettled, policy, now) or decide_node(node, policy, now)
    return agent_condition_change(node, choice, policy, now) or choice


def _decide_schedulable(
    node: NodeView, policy: RemediationPolicy, now: datetime
) -> NodeAction | Wait:
    if has_request(node, Verb.RELEASE):
        return Release(node=node.name, forgive=True)
    worst = _worst_fault if is_requested_check(node.request) else _worst
    fault = worst(node, policy, now)
    return _NOTHING if fault is None else _quarantine(node, fault, policy, now)


def _decide_joining(node: NodeView, policy: RemediationPolicy, now: datetime) -> NodeAction | Wait:
    if has_request(node, Verb.RELEASE) and has_joined(node):
        return Release(node=node.name, forgive=True)
    needs_check = has_request(node, Verb.DEEP_CHECK)
    worst = _worst_fault if needs_check else _worst
    fault = check_fault(node, policy, now) or worst(node, policy, now)
    if fault is not None:
        return _quarantine(node, fault, policy, now)
    is_checking = node.record.phase is Phase.CHECKING
    if is_checking and node.check is None and node.record.pairing is None:
        return _await_check(node, policy, now)
    if is_checking:
        return _after_check(node, policy, now)
    if not has_joined(node):
        return _NOTHING
    if node.request is not None and needs_check:
        return StartCheck(node=node.name, kinds=node.request.checks)
    must_check = policy.deep_check_on_start and is_checked_by_policy(node.group, policy)
    if must_check and node.record.checked_machine != node.machine:
        return StartCheck(node=node.name)
    return Release(node=node.name)


def _await_check(node: NodeView, policy: RemediationPolicy, now: datetime) -> Wait:
    ends_at = check_ends_at(node, policy)
    if node.check_pending and now >= ends_at:
        why = f"its deep health check has not begun: {node.check_pending}"
        return Wait(until=None, why=why)
    return Wait(until=ends_at)


def _after_check(node: NodeView, policy: RemediationPolicy, now: datetime) -> NodeAction | Wait:
    """Return the action for a node whose own check did not fail; a skipped check is not a pass."""
    if node.heartbeat_at is None or has_pairs(node, policy):
        return _NOTHING
    silent = agent_fault(node, policy, now)
    if silent is not None and policy.silent_agent_action is not SilentAgentAction.WARN:
        return _quarantine(node, silent, policy, now)
    has_passed = node.check is not None and node.check.outcome is Outcome.PASSED
    return Release(node=node.name, checked=has_passed)


def _decide_quarantined(
    node: NodeView, policy: RemediationPolicy, now: datetime
) -> NodeAction | Wait:
    remediation = remediation_of(node)
    if has_request(node, Verb.RELEASE):
        return Release(node=node.name, forgive=True)
    fault = _worst(node, policy, now)
    if fault is None and not _stays_without_fault(remediation):
        if node.heartbeat_at is None:
            return _NOTHING
        return Release(node=node.name, checked=is_checked_since(node.record))
    if fault is not None and _takes_over(node, fault, remediation, policy, now):
        return Reassign(
            node=node.name,
            fault=fault,
            remedy=remedy_for(node, fault, policy, now),
            request_id=_request_id(node, fault),
        )
    if node.record.phase is Phase.QUARANTINED:
        return _begin_repair(node, remediation, policy)
    timeout = drain_time(node, remediation, policy)
    deadline = observed_deadline(node, node.record.phase_since + timeout, timeout)
    if node.running_jobs and node.powered_on is not False and now < deadline:
        return Wait(until=deadline)
    match remediation.remedy:
        case Remedy.NONE:
            pairing = Pairing(since=now) if is_borrowed(node.record) else None
            return StartCheck(node=node.name, kinds=node.record.kinds, pairing=pairing)
        case Remedy.REPLACE:
            return replacement(node, remediation.reason, policy, now)
        case _:
            return Reboot(node=node.name)


def _begin_repair(
    node: NodeView, remediation: Remediation, policy: RemediationPolicy
) -> NodeAction | Wait:
    if policy.node_recovery is RecoveryMode.NONE and remediation.condition != Condition.REQUESTED:
        return Wait(until=None, why=DEFERRED_BY_MODE)
    if is_agent_silent(remediation) and not _gets_check(node, policy):
        return Wait(until=None, why="Holdfast agent silent; inspect its pod or service")
    if remediation.urgency is Urgency.DEFERRED and node.running_jobs:
        return Wait(until=None, why="its jobs are still running; the repair starts when they end")
    return Drain(node=node.name)


def _gets_check(node: NodeView, policy: RemediationPolicy) -> bool:
    """Return whether a node with a silent agent gets a deep health check; one is enough."""
    is_configured = policy.silent_agent_action is SilentAgentAction.DEEP_CHECK
    return is_configured and not is_checked_since(node.record)


def _worst(node: NodeView, policy: RemediationPolicy, now: datetime) -> Fault | None:
    """Return the worst fault; a person's new request precedes all, as they may know better."""
    if node.request is not None and not is_request_taken(node) and not yields(node, policy):
        requested = request_fault(node.request)
        if requested is not None:
            return requested
    return _worst_fault(node, policy, now)


def _worst_fault(node: NodeView, policy: RemediationPolicy, now: datetime) -> Fault | None:
    return next(iter(node_faults(node, policy, now)), None)


def _takes_over(
    node: NodeView, fault: Fault, remediation: Remediation, policy: RemediationPolicy, now: datetime
) -> bool:
    """Return whether the remediation now follows ``fault``, the worst of its node."""
    if Condition.REQUESTED in (fault.condition, remediation.condition):
        return fault.condition == Condition.REQUESTED  # other faults are handled afterwards
    if fault.condition == Condition.AGENT_SILENT and node.record.phase is Phase.DRAINING:
        return False  # a started repair is completed
    if not _stays_without_fault(remediation) and not _still_holds(node, remediation, policy, now):
        return True
    remedy = remedy_for(node, fault, policy, now)
    if remedy.strength != remediation.remedy.strength:
        return remedy.strength > remediation.remedy.strength
    return remediation.urgency is Urgency.DEFERRED and fault.urgency is Urgency.IMMEDIATE


def _still_holds(
    node: NodeView, remediation: Remediation, policy: RemediationPolicy, now: datetime
) -> bool:
    return any(fault.reason == remediation.reason for fault in node_faults(node, policy, now))


def _stays_without_fault(remediation: Remediation) -> bool:
    """Return whether the cause cannot disappear by itself, as a finding of the agent can."""
    return remediation.condition in (
        Condition.REQUESTED,
        Condition.DEEP_CHECK,
        Condition.REPEAT_OFFENDER,
    )


def _quarantine(
    node: NodeView, fault: Fault, policy: RemediationPolicy, now: datetime
) -> Quarantine:
    return Quarantine(
        node=node.name,
        fault=fault,
        remedy=remedy_for(node, fault, policy, now),
        request_id=_request_id(node, fault),
    )


def _request_id(node: NodeView, fault: Fault) -> str:
    requested = fault.condition == Condition.REQUESTED and node.request is not None
    return node.request.id if requested and node.request is not None else ""


def _silent_at(node: NodeView, policy: RemediationPolicy, now: datetime) -> list[datetime]:
    """Return when silence of the node or of its agent becomes a fault, unless it is one already."""
    times = (silent_at(node, policy), agent_silent_at(node, policy))
    return [at for at in times if at is not None and at > now]


def _earliest(*times: datetime | None) -> datetime | None:
    return min((at for at in times if at is not None), default=None)
