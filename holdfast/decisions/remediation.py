"""Nodes: what to do with each, and what the cluster as a whole allows."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from holdfast.decisions.breaker import trip
from holdfast.decisions.faults import (
    check_fault,
    node_faults,
    offender_fault,
    request_fault,
    silent_at,
)
from holdfast.decisions.ladder import is_repeat_offender, remedy_for
from holdfast.decisions.lifecycle import is_out_of_service, machine_ordered_on
from holdfast.decisions.patience import due_at, is_refused_for_good
from holdfast.decisions.policy import RecoveryMode, RemediationPolicy
from holdfast.model.actions import (
    BeginCheck,
    Drain,
    HeldBack,
    NodeAction,
    Plan,
    Quarantine,
    Reassign,
    Reboot,
    Rejoin,
    Release,
    Replace,
    Retire,
    Wait,
)
from holdfast.model.health import Fault, Remedy, Urgency
from holdfast.model.names import Condition, Reason
from holdfast.model.nodes import ClusterView, Course, NodeView, Phase
from holdfast.model.requests import Verb

_HELD_BY_BREAKER: Final = "the breaker is open"
_HELD_BY_MODE: Final = "node recovery is set to None"
_NOTHING: Final = Wait(until=None)


def decide(cluster: ClusterView, policy: RemediationPolicy, now: datetime) -> Plan:
    """Choose what to do with every node now.

    The order of ``cluster.nodes`` does not matter. Nothing is decided twice for one node.
    """
    unsettled, wake_at = _unsettled(cluster.nodes, policy, now)
    waiting = _waiting_successors(unsettled)
    successors = {old: new for new, old in sorted(waiting.items(), reverse=True)}
    members = [node for node in unsettled if node.name not in waiting]
    tripped = trip(cluster, unsettled, policy, now)
    is_open = tripped is not None or cluster.breaker.tripped_at is not None
    actions: list[NodeAction] = []
    drains: list[tuple[NodeView, Drain]] = []
    held: list[HeldBack] = []
    for node in members:
        wake_at = _earlier(wake_at, _falls_silent_at(node, policy, now))
        if node.name in successors:
            actions.append(Retire(node=node.name, successor=successors[node.name]))
            continue
        choice = _decide_member(node, cluster.offenders, policy, now)
        if isinstance(choice, Wait):
            wake_at = _earlier(wake_at, choice.until)
            if choice.why:
                held.append(HeldBack(node=node.name, why=choice.why))
        elif (is_open or node.held) and isinstance(choice, Drain | Reboot | Replace):
            why = f"a person holds it: {node.held}" if node.held else _HELD_BY_BREAKER
            held.append(HeldBack(node=node.name, why=why))
        elif isinstance(choice, Drain):
            drains.append((node, choice))
        else:
            actions.append(choice)
    size = len(cluster.nodes) - len(waiting)
    allowed, refused = _within_budget(drains, members, policy.max_unavailable.of(size))
    return Plan(
        actions=tuple(sorted((*actions, *allowed), key=lambda action: action.node)),
        trip=tripped,
        held_back=tuple(sorted((*held, *refused), key=lambda item: item.node)),
        wake_at=wake_at,
    )


def decide_node(node: NodeView, policy: RemediationPolicy, now: datetime) -> NodeAction | Wait:
    """Choose what to do with one node, the rest of the cluster left out of account."""
    match node.record.phase:
        case Phase.JOINING | Phase.CHECKING:
            return _decide_joining(node, policy, now)
        case Phase.SCHEDULABLE:
            return _decide_schedulable(node, policy, now)
        case Phase.QUARANTINED | Phase.DRAINING:
            return _decide_quarantined(node, policy, now)
        case Phase.REBOOTING:
            return _decide_rebooting(node, policy, now)
        case Phase.REPLACING:
            return _decide_replacing(node, policy, now)


def _unsettled(
    nodes: Iterable[NodeView], policy: RemediationPolicy, now: datetime
) -> tuple[list[NodeView], datetime | None]:
    """Nodes that need a closer look, and when the first of the others will go silent.

    Nearly all nodes of a fleet are healthy nearly always, so this loop is kept bare.
    """
    timeout = policy.heartbeat_timeout
    heard_after = now - timeout
    oldest = None
    unsettled = []
    for node in nodes:
        heard = node.heartbeat_at
        record = node.record
        if (
            record.phase is not Phase.SCHEDULABLE
            or node.faults
            or node.request is not None
            or node.powered_on is False
            or record.history
            or heard is None
            or heard <= heard_after
        ):
            unsettled.append(node)
        elif oldest is None or heard < oldest:
            oldest = heard
    return unsettled, None if oldest is None else oldest + timeout


def _waiting_successors(nodes: Iterable[NodeView]) -> dict[str, str]:
    """Nodes that are there to take over, each with the node that it was ordered to replace.

    Until it has taken over, a successor is no member of the cluster: it neither counts for the
    budget nor has a course of its own. One with another course took over from an earlier node of
    the same name.
    """
    leaving = {
        node.name: _course(node).incident_id
        for node in nodes
        if node.record.phase is Phase.REPLACING
    }
    return {
        node.name: node.replaces
        for node in nodes
        if node.record.phase is Phase.JOINING
        and node.replaces in leaving
        and (node.record.course is None or node.record.course.incident_id == leaving[node.replaces])
    }


def _decide_member(
    node: NodeView, offenders: frozenset[str], policy: RemediationPolicy, now: datetime
) -> NodeAction | Wait:
    returned = offender_fault(node, offenders)
    if returned is not None:
        return _quarantine(node, returned, policy, now)
    return decide_node(node, policy, now)


def _decide_schedulable(
    node: NodeView, policy: RemediationPolicy, now: datetime
) -> NodeAction | Wait:
    if _wants(node, Verb.RELEASE):
        return Release(node=node.name, forgive=True)
    fault = _worst(node, policy, now)
    return _NOTHING if fault is None else _quarantine(node, fault, policy, now)


def _decide_joining(node: NodeView, policy: RemediationPolicy, now: datetime) -> NodeAction | Wait:
    if _wants(node, Verb.RELEASE) and node.heartbeat_at is not None:
        return Release(node=node.name, forgive=True)
    wants_check = _wants(node, Verb.DEEP_CHECK)
    worst = _worst_fault if wants_check else _worst
    fault = check_fault(node, policy, now) or worst(node, policy, now)
    if fault is not None:
        return _quarantine(node, fault, policy, now)
    is_checking = node.record.phase is Phase.CHECKING
    if is_checking and node.check is None:
        return Wait(until=node.record.phase_since + policy.deep_check_timeout)
    if node.heartbeat_at is None:
        return _NOTHING
    if is_checking:
        return Release(node=node.name, checked=True)
    is_checked = node.record.checked_machine == node.machine
    if wants_check or (policy.deep_check_on_start and not is_checked):
        return BeginCheck(node=node.name)
    return Release(node=node.name)


def _decide_quarantined(
    node: NodeView, policy: RemediationPolicy, now: datetime
) -> NodeAction | Wait:
    course = _course(node)
    if _wants(node, Verb.RELEASE):
        return Release(node=node.name, forgive=True)
    fault = _worst(node, policy, now)
    if fault is None and not _stays_without_fault(course):
        return _NOTHING if node.heartbeat_at is None else Release(node=node.name)
    if fault is not None and _takes_over(node, fault, course, policy, now):
        return Reassign(
            node=node.name,
            fault=fault,
            remedy=remedy_for(node, fault, policy, now),
            request_id=_request_id(node, fault),
        )
    if node.record.phase is Phase.QUARANTINED:
        return _begin_repair(node, course, policy)
    deadline = node.record.phase_since + _drain_time(course, policy)
    if node.running_jobs and node.powered_on is not False and now < deadline:
        return Wait(until=deadline)
    match course.remedy:
        case Remedy.NONE:
            return BeginCheck(node=node.name)
        case Remedy.REPLACE:
            return _replace(node, course.reason, policy, now)
        case _:
            return Reboot(node=node.name)


def _begin_repair(node: NodeView, course: Course, policy: RemediationPolicy) -> NodeAction | Wait:
    if policy.node_recovery is RecoveryMode.NONE and course.condition != Condition.REQUESTED:
        return Wait(until=None, why=_HELD_BY_MODE)
    if course.urgency is Urgency.DEFERRED and node.running_jobs:
        return Wait(until=None, why="its jobs run on; the repair begins when they end")
    return Drain(node=node.name)


def _drain_time(course: Course, policy: RemediationPolicy) -> timedelta:
    """A node that is not heard can hardly be told to drain, so it gets no long time for it."""
    if course.condition == Condition.NODE_LOST:
        return min(policy.drain_timeout, policy.heartbeat_timeout)
    return policy.drain_timeout


def _decide_rebooting(
    node: NodeView, policy: RemediationPolicy, now: datetime
) -> NodeAction | Wait:
    course = _course(node)
    if node.machine != course.machine and node.heartbeat_at is not None:
        return Rejoin(node=node.name)
    if _wants(node, Verb.REPLACE):
        return _replace(node, Reason.REQUESTED_REPLACE, policy, now)
    if course.remedy is not Remedy.REPLACE:  # else the provider said that the machine is gone
        deadline = due_at(node.record, policy)
        is_automatic = policy.node_recovery is RecoveryMode.AUTOMATIC
        is_in_vain = is_automatic and is_refused_for_good(node.record, policy, now)
        if deadline is None and not is_in_vain:
            return _again(course, Reboot(node=node.name), now)
        if deadline is not None and now < deadline:
            return Wait(until=deadline)
    if policy.node_recovery is RecoveryMode.NONE:
        return Wait(until=None, why=f"it did not come back from its reboot; {_HELD_BY_MODE}")
    return _replace(node, course.reason, policy, now)


def _decide_replacing(
    node: NodeView, policy: RemediationPolicy, now: datetime
) -> NodeAction | Wait:
    course = _course(node)
    if node.provider_id != machine_ordered_on(course):
        return Rejoin(node=node.name)
    order = _replace(node, course.reason, policy, now)
    deadline = due_at(node.record, policy)
    if deadline is None:
        return _again(course, order, now)
    return Wait(until=deadline) if now < deadline else order


def _again(course: Course, order: Reboot | Replace, now: datetime) -> NodeAction | Wait:
    if course.retry_at is not None and now < course.retry_at:
        return Wait(until=course.retry_at)
    return order


def _worst(node: NodeView, policy: RemediationPolicy, now: datetime) -> Fault | None:
    """A new request of a person goes before every fault: they may know better."""
    course = node.record.course
    if node.request is not None and (course is None or node.request.id != course.request_id):
        asked = request_fault(node.request)
        if asked is not None:
            return asked
    return _worst_fault(node, policy, now)


def _worst_fault(node: NodeView, policy: RemediationPolicy, now: datetime) -> Fault | None:
    return next(iter(node_faults(node, policy, now)), None)


def _takes_over(
    node: NodeView, fault: Fault, course: Course, policy: RemediationPolicy, now: datetime
) -> bool:
    """Whether the course is to follow ``fault``, the worst of its node, from now on."""
    if Condition.REQUESTED in (fault.condition, course.condition):
        return fault.condition == Condition.REQUESTED  # faults that remain are answered afterwards
    if not _stays_without_fault(course) and not _still_holds(node, course, policy, now):
        return True
    remedy = remedy_for(node, fault, policy, now)
    if remedy.strength != course.remedy.strength:
        return remedy.strength > course.remedy.strength
    return course.urgency is Urgency.DEFERRED and fault.urgency is Urgency.IMMEDIATE


def _still_holds(node: NodeView, course: Course, policy: RemediationPolicy, now: datetime) -> bool:
    return any(fault.reason == course.reason for fault in node_faults(node, policy, now))


def is_request_taken(node: NodeView) -> bool:
    """Whether the node's request is being carried out already and can be forgotten."""
    if node.request is None:
        return False
    course = node.record.course
    if course is not None and course.request_id == node.request.id:
        return True
    match node.record.phase:
        case Phase.CHECKING:
            return node.request.verb is Verb.DEEP_CHECK
        case Phase.REBOOTING:
            return node.request.verb is Verb.REBOOT
        case Phase.REPLACING:
            return node.request.verb in (Verb.REBOOT, Verb.REPLACE)
    return False


def _wants(node: NodeView, verb: Verb) -> bool:
    return node.request is not None and node.request.verb is verb


def _stays_without_fault(course: Course) -> bool:
    """A cause that is no reading of the agent cannot go away by itself."""
    return course.condition in (
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
    asked = fault.condition == Condition.REQUESTED and node.request is not None
    return node.request.id if asked and node.request is not None else ""


def _replace(node: NodeView, reason: str, policy: RemediationPolicy, now: datetime) -> Replace:
    return Replace(
        node=node.name,
        reason=reason,
        repeat_offender=_course(node).condition != Condition.REQUESTED
        and is_repeat_offender(node, policy, now),
    )


def _course(node: NodeView) -> Course:
    if node.record.course is None:
        raise ValueError(
            f"{node.name} is {node.record.phase} without a course: its record is damaged"
        )
    return node.record.course


def _within_budget(
    drains: list[tuple[NodeView, Drain]], members: Sequence[NodeView], allowed: int
) -> tuple[list[Drain], list[HeldBack]]:
    out = sum(is_out_of_service(node.record) for node in members) if drains else 0
    room = max(0, allowed - out)
    drains.sort(key=_most_urgent_first)
    why = f"{out + min(room, len(drains))} of {allowed} allowed nodes are out of service"
    return (
        [drain for _, drain in drains[:room]],
        [HeldBack(node=node.name, why=why) for node, _ in drains[room:]],
    )


def _most_urgent_first(item: tuple[NodeView, Drain]) -> tuple[bool, datetime, str]:
    node = item[0]
    return (_course(node).urgency is Urgency.DEFERRED, node.record.phase_since, node.name)


def _falls_silent_at(node: NodeView, policy: RemediationPolicy, now: datetime) -> datetime | None:
    """When silence will become a fault of the node by itself; None if it is one already."""
    at = silent_at(node, policy)
    return at if at is not None and at > now else None


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    if one is None or other is None:
        return one or other
    return min(one, other)
