"""Node loop: observe, decide, act, record."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from holdfast.decisions.clock_steps import may_be_corrected
from holdfast.decisions.faults import node_faults
from holdfast.decisions.incident_updates import advanced, expired, opened, vanished
from holdfast.decisions.lifecycle import accepted, after, inherited, machine_removed, refused
from holdfast.decisions.policy import RemediationPolicy
from holdfast.decisions.provider_timeouts import due_at, pause_after_refusal
from holdfast.decisions.remediation import decide
from holdfast.decisions.suspect_nodes import uncorroborated_nodes
from holdfast.decisions.taken_requests import is_request_taken
from holdfast.engine.check_requests import CheckRequests
from holdfast.engine.drill_reports import DrillReports
from holdfast.engine.node_events import check_ended, event_of
from holdfast.engine.record_dates import RecordDates
from holdfast.engine.repeats import AFTER_ERROR, RepeatLimiter
from holdfast.model.actions import (
    NodeAction,
    Plan,
    Quarantine,
    Reboot,
    Release,
    Replace,
    Retire,
)
from holdfast.model.errors import (
    BackendError,
    InProgress,
    NodeGone,
    ProviderError,
    RetryLater,
)
from holdfast.model.events import (
    BreakerClosed,
    BreakerTripped,
    FaultUncorroborated,
    NodeCheckWaits,
    NodeVanished,
    RepairDeferred,
    RepairOverdue,
    RepairPostponed,
)
from holdfast.model.incidents import Incident
from holdfast.model.nodes import ClusterView, NodeRecord, NodeView, Phase, Pool
from holdfast.ports.clock import Clock
from holdfast.ports.cluster import ClusterBackend
from holdfast.ports.events import EventSink
from holdfast.ports.incidents import IncidentStore
from holdfast.ports.leadership import Alone, Leadership
from holdfast.ports.provider import NodeProvider

RESYNC: Final = timedelta(minutes=1)
"""Maximum time between two rounds, so that a lost wake-up costs a minute, not a node."""

EXPIRY_PERIOD: Final = timedelta(hours=1)
"""Interval of deleting expired incidents."""

EXPIRED_AT_ONCE: Final = 100
"""Maximum number of incidents deleted in one round; the others follow an hour later."""

SLICE: Final = timedelta(milliseconds=100)
"""Maximum duration of a round, so that many simultaneous repairs do not delay marking nodes that
turn faulty meanwhile. Several times what reading and evaluating 5,000 nodes takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePorts:
    """Ports of the node loop."""

    cluster: ClusterBackend
    provider: NodeProvider
    incidents: IncidentStore
    events: EventSink
    clock: Clock
    leadership: Leadership = field(default_factory=Alone)


class NodeReconciler:
    """Drives each node from fault to release. Keeps no state that a restart would miss."""

    def __init__(self, ports: NodePorts, policy: RemediationPolicy) -> None:
        self._ports = ports
        self._policy = policy
        self._checks = CheckRequests(ports.cluster, ports.leadership, ports.events)
        self._repeats = RepeatLimiter(ports.events)
        self._drills = DrillReports(ports.events)
        self._known_incidents: set[str] = set()  # looks each up once
        self._listed_at: datetime | None = None
        self._unopened: list[Incident] = []  # of nodes quarantined in this round
        self._cut_at = ""  # where the next round continues
        self._peer_pools: frozenset[Pool] = frozenset()  # set by each plan
        self._dates = RecordDates(ports.cluster.put, ports.clock, ports.leadership, self._repeats)

    def step(self) -> datetime:
        """Run one round; it ends early when another controller becomes the leader.

        Returns:
            Time of the next round, unless something happens before.

        Raises:
            StorageFull: nothing can be recorded, so nothing may be done.
            StateDamaged: nothing can be recorded until a restart has restored the state.

        """
        now = self._ports.clock.now()
        try:
            view = self._ports.cluster.snapshot(self._peer_pools)
        except BackendError as error:
            return self._repeats.call_failed("reading the cluster", error, now)
        # Had the clock been set back meanwhile, no heartbeat would be recent.
        now = min(now, view.read_at or now, self._ports.clock.now())
        records = {node.name: node.record for node in view.nodes if may_be_corrected(node)}
        if (corrected_at := self._dates.correct(records, now)) is None:
            return now
        plan = decide(view, self._policy, now)
        self._peer_pools = plan.peer_pools
        wake_times = [now + RESYNC, corrected_at]
        wake_times += [plan.wake_at] if plan.wake_at is not None else []
        wake_times.append(self._trip(plan, now))
        wake_times.append(self._close_breaker(plan, now))
        wake_times.append(self._close_vanished(view, now))
        wake_times += self._act_on_nodes(view, plan, now)
        wake_times.append(self._request_checks(view, now))
        self._report_waiting(view, plan, now)
        self._drills.report(view, now)
        return min(wake_times)

    def _request_checks(self, view: ClusterView, now: datetime) -> datetime:
        has_requested = self._checks.request(
            uncorroborated_nodes(view, self._policy, now),
            lambda one, ok: FaultUncorroborated(
                node=one.node, evidence=one.evidence, is_checked=ok
            ),
            lambda what, error: self._repeats.call_failed(what, error, now),
        )
        return now if has_requested else now + RESYNC

    def _act_on_nodes(self, view: ClusterView, plan: Plan, now: datetime) -> Iterator[datetime]:
        """Quarantine nodes first, then act on the others until the round's time is used up."""
        nodes = {node.name: node for node in view.nodes}
        actions = {action.node: action for action in plan.actions}
        marked = [node for node in nodes.values() if isinstance(actions.get(node.name), Quarantine)]
        others = [
            node
            for node in nodes.values()
            if (node.name in actions or node.record.phase is not Phase.SCHEDULABLE)
            and not isinstance(actions.get(node.name), Quarantine)
        ]
        for node in marked:
            yield self._carry_on(node, actions[node.name], nodes, now)
        yield self._open_incidents(now)
        cut_at, self._cut_at = self._cut_at, ""
        for node in sorted(others, key=lambda node: (node.name <= cut_at, node.name)):
            yield self._carry_on(node, actions.get(node.name), nodes, now)
            if self._ports.clock.now() - now > SLICE:
                self._cut_at = node.name
                yield now
                return

    def _trip(self, plan: Plan, now: datetime) -> datetime:
        if plan.trip is None or not self._ports.leadership.is_held():
            return now + RESYNC
        try:
            self._ports.cluster.trip_breaker(plan.trip)
        except BackendError as error:
            return self._repeats.call_failed("opening the breaker", error, now)
        self._ports.events.emit(BreakerTripped(reason=plan.trip.reason))
        return now

    def _close_breaker(self, plan: Plan, now: datetime) -> datetime:
        if plan.close is None or not self._ports.leadership.is_held():
            return now + RESYNC
        try:
            self._ports.cluster.close_breaker(plan.close)
        except BackendError as error:
            return self._repeats.call_failed("closing the breaker", error, now)
        self._ports.events.emit(BreakerClosed(reason=plan.close.reason))
        return now

    def _close_vanished(self, view: ClusterView, now: datetime) -> datetime:
        """End the incidents of remediations that no node has any more without a release."""
        borne = {
            node.record.remediation.incident_id
            for node in view.nodes
            if node.record.phase is not Phase.SCHEDULABLE and node.record.remediation is not None
        }
        try:
            if self._listed_at is None or now - self._listed_at >= EXPIRY_PERIOD:
                self._list_incidents(now)
            for incident_id in sorted(self._known_incidents - borne):
                if not self._ports.leadership.is_held():
                    return now + AFTER_ERROR
                self._close(incident_id, view, now)
        except BackendError as error:
            return self._repeats.call_failed(
                "closing incidents of nodes that disappeared", error, now
            )
        return now + RESYNC

    def _list_incidents(self, now: datetime) -> None:
        """Read which incidents are open, and delete expired ones."""
        stored = self._ports.incidents.list_incidents()
        self._known_incidents |= {one.id for one in stored if one.ended_at is None}
        for incident_id in expired(stored, self._policy, now)[:EXPIRED_AT_ONCE]:
            if not self._ports.leadership.is_held():
                return
            self._ports.incidents.delete(incident_id)
        self._listed_at = now

    def _close(self, incident_id: str, view: ClusterView, now: datetime) -> None:
        incident = self._ports.incidents.get(incident_id)
        if incident is not None and {incident.node, incident.successor} & view.unreadable:
            return
        if incident is not None and incident.ended_at is None:
            self._ports.incidents.put(vanished(incident, now))
            node = incident.successor or incident.node
            self._ports.events.emit(NodeVanished(node=node, reason=incident.reason))
        self._known_incidents.discard(incident_id)

    def _carry_on(
        self,
        node: NodeView,
        action: NodeAction | None,
        nodes: Mapping[str, NodeView],
        now: datetime,
    ) -> datetime:
        if not self._ports.leadership.is_held():
            return now + AFTER_ERROR
        try:
            node = self._with_lost_calls_repeated(node, now)
            if action is not None:
                return self._act(action, node, nodes, now)
            self._keep_phase(node)
        except BackendError as error:
            what = "keep" if action is None else type(action).__name__.lower()
            return self._repeats.call_failed(f"{what} {node.name}", error, now)
        return now + RESYNC

    def _with_lost_calls_repeated(self, node: NodeView, now: datetime) -> NodeView:
        """Return the node after repeating calls that were lost after its record was stored."""
        remediation = node.record.remediation
        if remediation is not None and remediation.incident_id not in self._known_incidents:
            if self._ports.incidents.get(remediation.incident_id) is None:
                faults = node_faults(node, self._policy, now)
                cause = next(
                    (fault for fault in faults if fault.reason == remediation.reason), None
                )
                self._ports.incidents.put(opened(node, remediation, cause))
            self._known_incidents.add(remediation.incident_id)
        if node.request is not None and is_request_taken(node):
            self._ports.cluster.clear_request(node.name, node.request.id)
            return replace(node, request=None)
        return node

    def _open_incidents(self, now: datetime) -> datetime:
        """Store the incidents of newly quarantined nodes; a lost one is stored in a later round."""
        incidents, self._unopened = self._unopened, []
        for incident in incidents:
            if not self._ports.leadership.is_held():
                return now + AFTER_ERROR
            try:
                self._ports.incidents.put(incident)
            except BackendError as error:
                return self._repeats.call_failed(
                    f"open the incident of {incident.node}", error, now
                )
            self._known_incidents.add(incident.id)
        return now + RESYNC

    def _keep_phase(self, node: NodeView) -> None:
        """Repeat the calls of the node's phase."""
        record = node.record
        if record.phase is Phase.DRAINING and node.running_jobs and not node.pause_reason:
            self._ports.cluster.drain(node.name)
        if record.phase is not Phase.CHECKING:
            return
        pairing = record.pairing
        if pairing is None and node.check is None:
            check_id = record.phase_since.isoformat()
            self._ports.cluster.start_check(node.name, check_id, record.kinds)
        elif pairing is not None and pairing.began_at is not None and node.pair is None:
            test_id = pairing.began_at.isoformat()
            self._ports.cluster.start_pair(node.name, pairing.partner, test_id)

    def _act(
        self, action: NodeAction, node: NodeView, nodes: Mapping[str, NodeView], now: datetime
    ) -> datetime:
        record = after(node, action, now)
        if node.record.remediation is not None:  # before the record, which may drop it
            self._advance_incident(node.record.remediation.incident_id, action, node, now)
        match action:
            case Reboot() | Replace():
                return self._order(action, node, record, now)
            case Retire():
                self._retire(node, nodes[action.successor], now)
            case _:
                self._ports.cluster.put(node.name, record)
        if isinstance(action, Quarantine) and record.remediation is not None:
            if node.record.remediation is None:  # no incident without a remediation
                self._unopened.append(opened(node, record.remediation, action.fault))
            else:
                self._known_incidents.add(record.remediation.incident_id)
        if node.request is not None and (
            isinstance(action, Release) or is_request_taken(replace(node, record=record))
        ):
            self._ports.cluster.clear_request(node.name, node.request.id)
        ended = check_ended(node, record, now)
        if ended is not None:
            self._ports.events.emit(ended)
        reported = event_of(action, node)
        if reported is not None:
            self._ports.events.emit(reported)
        return now

    def _order(
        self, action: Reboot | Replace, node: NodeView, record: NodeRecord, now: datetime
    ) -> datetime:
        """Record the order, send it to the provider, record its response; safe to kill anywhere."""
        cluster = self._ports.cluster
        cluster.put(node.name, record)
        self._report_overdue(node.record, node.name, now)
        assert record.remediation is not None  # noqa: S101 - orders need a remediation
        call = self._ports.provider.reboot
        if isinstance(action, Replace):
            call = self._ports.provider.replace
            if action.repeat_offender:  # from here on it cannot return to jobs
                cluster.remember_offender(node.provider_id)
        if not self._ports.leadership.is_held():
            return now + AFTER_ERROR
        try:
            call(node, record.remediation.token)
        except NodeGone:
            record = machine_removed(record)
            if isinstance(action, Reboot):
                cluster.put(node.name, record)
                return now
        except ProviderError as error:
            return self._postponed(error, node, record, now)
        cluster.put(node.name, accepted(record, now))
        reported = event_of(action, node)
        if reported is not None:
            self._ports.events.emit(reported)
        return now

    def _postponed(
        self, error: ProviderError, node: NodeView, record: NodeRecord, now: datetime
    ) -> datetime:
        requested = error.after if isinstance(error, RetryLater) else None
        pause = pause_after_refusal(record, requested, self._policy, now)
        if isinstance(error, InProgress):
            pause = error.after
        pause = max(pause, AFTER_ERROR)
        unknown = error.is_outcome_unknown
        self._ports.cluster.put(node.name, refused(record, now + pause, is_outcome_unknown=unknown))
        if isinstance(error, InProgress):
            return now + pause
        remedy = record.remediation.remedy if record.remediation is not None else ""
        self._ports.events.emit(
            RepairPostponed(node=node.name, remedy=remedy, error=str(error), retry_after=pause)
        )
        return now + pause

    def _retire(self, node: NodeView, successor: NodeView, now: datetime) -> None:
        if successor.record.remediation is None:
            self._ports.cluster.put(successor.name, inherited(successor.record, node.record, now))
        self._ports.cluster.retire(node.name)

    def _advance_incident(
        self, incident_id: str, action: NodeAction, node: NodeView, now: datetime
    ) -> None:
        incident = self._ports.incidents.get(incident_id)
        if incident is not None:
            self._ports.incidents.put(advanced(incident, action, node, now))

    def _report_overdue(self, record: NodeRecord, node: str, now: datetime) -> None:
        """Report if the order of ``record`` was accepted and not carried out in time."""
        due, remediation = due_at(record, self._policy), record.remediation
        if (
            remediation is not None
            and remediation.ordered_at is not None
            and due is not None
            and now >= due
        ):
            waited = now - remediation.ordered_at
            self._ports.events.emit(
                RepairOverdue(node=node, remedy=remediation.remedy, waited=waited)
            )

    def _report_waiting(self, view: ClusterView, plan: Plan, now: datetime) -> None:
        """Report what cannot start yet, once for as long as its node waits."""
        quarantined = {one.name for one in view.nodes if one.record.phase is Phase.QUARANTINED}
        self._repeats.keep_nodes({*quarantined, *(one.node for one in plan.deferred)})
        for one in plan.deferred:
            event = NodeCheckWaits if one.is_check else RepairDeferred
            self._repeats.emit(event(node=one.node, why=one.why), now)
