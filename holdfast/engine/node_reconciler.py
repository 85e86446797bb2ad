"""The node loop: observe, decide, act, record."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from holdfast.decisions.incident_course import advanced, opened
from holdfast.decisions.lifecycle import accepted, after, inherited, machine_gone, refused
from holdfast.decisions.policy import RemediationPolicy
from holdfast.decisions.remediation import decide, is_request_taken
from holdfast.engine.node_events import event_of
from holdfast.model.actions import NodeAction, Plan, Quarantine, Reboot, Replace, Retire
from holdfast.model.errors import BackendError, NodeGone, ProviderError, RetryLater, StorageFull
from holdfast.model.events import BreakerTripped, CallFailed, RepairHeldBack, RepairPostponed
from holdfast.model.nodes import NodeRecord, NodeView, Phase
from holdfast.ports.clock import Clock
from holdfast.ports.cluster import ClusterBackend
from holdfast.ports.events import EventSink
from holdfast.ports.incidents import IncidentStore
from holdfast.ports.provider import NodeProvider

RESYNC: Final = timedelta(minutes=1)
"""A round is made at least this often, so that a lost wake-up costs a minute, not a node."""

AFTER_ERROR: Final = timedelta(seconds=1)
"""Pause after a backend failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePorts:
    """What the node loop talks to."""

    cluster: ClusterBackend
    provider: NodeProvider
    incidents: IncidentStore
    events: EventSink
    clock: Clock


class NodeReconciler:
    """Carries each node from fault to release. Keeps no state that a restart would miss."""

    def __init__(self, ports: NodePorts, policy: RemediationPolicy) -> None:
        self._ports = ports
        self._policy = policy
        self._held_back: dict[str, str] = {}  # only so that each reason is told once

    def step(self) -> datetime:
        """Make one round.

        Returns:
            When to make the next, unless something happens before.

        Raises:
            StorageFull: nothing can be recorded, so nothing may be done.

        """
        now = self._ports.clock.now()
        try:
            view = self._ports.cluster.snapshot()
        except BackendError as error:
            return self._failed("reading the cluster", error, now)
        plan = decide(view, self._policy, now)
        wake_times = [now + RESYNC, *([plan.wake_at] if plan.wake_at is not None else [])]
        wake_times += [self._keep(node, now) for node in view.nodes if _is_unsettled(node)]
        wake_times.append(self._trip(plan, now))
        nodes = {node.name: node for node in view.nodes}
        wake_times += [self._act(action, nodes, now) for action in plan.actions]
        self._tell_held_back(plan)
        return min(wake_times)

    def _keep(self, node: NodeView, now: datetime) -> datetime:
        """Repeat what must hold while the node is in its phase, in case a call was lost."""
        cluster, record = self._ports.cluster, node.record
        try:
            if node.request is not None and is_request_taken(node):
                cluster.clear_request(node.name, node.request.id)
            if record.phase is Phase.DRAINING and node.running_jobs:
                cluster.drain(node.name)
            if record.phase is Phase.CHECKING and node.check is None:
                cluster.begin_check(node.name, record.phase_since.isoformat())
        except BackendError as error:
            return self._failed(f"keeping {node.name} {record.phase}", error, now)
        return now + RESYNC

    def _trip(self, plan: Plan, now: datetime) -> datetime:
        if plan.trip is None:
            return now + RESYNC
        try:
            self._ports.cluster.trip_breaker(plan.trip)
        except BackendError as error:
            return self._failed("opening the breaker", error, now)
        self._ports.events.emit(BreakerTripped(reason=plan.trip.reason))
        return now

    def _act(self, action: NodeAction, nodes: Mapping[str, NodeView], now: datetime) -> datetime:
        node = nodes[action.node]
        try:
            self._record_incident(action, node, now)
            match action:
                case Reboot() | Replace():
                    return self._order(action, node, now)
                case Retire():
                    self._retire(action, node, nodes[action.successor])
                case _:
                    self._ports.cluster.put(node.name, after(node, action, now))
                    if node.request is not None:
                        self._forget_request(node, after(node, action, now))
        except BackendError as error:
            return self._failed(f"{type(action).__name__.lower()} {node.name}", error, now)
        self._ports.events.emit(event_of(action, node))
        return now

    def _forget_request(self, node: NodeView, record: NodeRecord) -> None:
        """Forget the request if ``record`` shows that it was taken up or carried out."""
        request = node.request
        assert request is not None  # noqa: S101 - the caller has looked
        is_taken = record.course is not None and record.course.request_id == request.id
        if is_taken or record.phase in (Phase.SCHEDULABLE, Phase.CHECKING):
            self._ports.cluster.clear_request(node.name, request.id)

    def _order(self, action: Reboot | Replace, node: NodeView, now: datetime) -> datetime:
        """Record the order, give it to the provider, record the answer; safe to die between."""
        cluster = self._ports.cluster
        record = after(node, action, now)
        if isinstance(action, Replace) and action.repeat_offender:
            cluster.remember_offender(node.provider_id)
        cluster.put(node.name, record)
        assert record.course is not None  # noqa: S101 - an order is part of a course
        call = self._ports.provider.reboot
        if isinstance(action, Replace):
            call = self._ports.provider.replace
        try:
            call(node, record.course.token)
        except NodeGone:
            if isinstance(action, Reboot):
                cluster.put(node.name, machine_gone(record))
                return now
        except ProviderError as error:
            return self._postponed(error, node, record, now)
        cluster.put(node.name, accepted(record, now))
        self._ports.events.emit(event_of(action, node))
        return now

    def _postponed(
        self, error: ProviderError, node: NodeView, record: NodeRecord, now: datetime
    ) -> datetime:
        pause = error.after if isinstance(error, RetryLater) else self._policy.provider_retry
        self._ports.cluster.put(node.name, refused(record, now + pause))
        remedy = record.course.remedy if record.course is not None else ""
        self._ports.events.emit(
            RepairPostponed(node=node.name, remedy=remedy, error=str(error), retry_after=pause)
        )
        return now + pause

    def _retire(self, action: Retire, node: NodeView, successor: NodeView) -> None:
        if successor.record.course is None:
            self._ports.cluster.put(action.successor, inherited(successor.record, node.record))
        self._ports.cluster.retire(node.name)

    def _record_incident(self, action: NodeAction, node: NodeView, now: datetime) -> None:
        incidents = self._ports.incidents
        course = node.record.course
        if course is None and isinstance(action, Quarantine):
            name = after(node, action, now).course
            assert name is not None  # noqa: S101 - a quarantine opens a course
            incidents.put(opened(name.incident_id, node, action, now))
        elif course is not None:
            incident = incidents.get(course.incident_id)
            if incident is not None:
                incidents.put(advanced(incident, action, now))

    def _tell_held_back(self, plan: Plan) -> None:
        held_back = {item.node: item.why for item in plan.held_back}
        for node, why in held_back.items():
            if self._held_back.get(node) != why:
                self._ports.events.emit(RepairHeldBack(node=node, why=why))
        self._held_back = held_back

    def _failed(self, what: str, error: BackendError, now: datetime) -> datetime:
        if isinstance(error, StorageFull):
            raise error
        self._ports.events.emit(CallFailed(what=what, error=str(error)))
        return now + AFTER_ERROR


def _is_unsettled(node: NodeView) -> bool:
    return node.record.phase is not Phase.SCHEDULABLE
