"""Nodes of a Kubernetes cluster."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Final

from holdfast.adapters.kubernetes.checks.check_jobs import PairIds
from holdfast.adapters.kubernetes.checks.deep_checks import DeepChecks
from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import NotFound
from holdfast.adapters.kubernetes.client.relist import RelistOnElection
from holdfast.adapters.kubernetes.nodes.cache import CachedNode, NodeCache
from holdfast.adapters.kubernetes.nodes.contact import Contact
from holdfast.adapters.kubernetes.nodes.dependencies import Dependencies
from holdfast.adapters.kubernetes.nodes.drain import Drainer
from holdfast.adapters.kubernetes.nodes.drift import DriftCorrection
from holdfast.adapters.kubernetes.nodes.encoding import new_request_patch, request_patch
from holdfast.adapters.kubernetes.nodes.heartbeats import KUBELETS, LeaseReader, NodeLease
from holdfast.adapters.kubernetes.nodes.idle_nodes import IdleNodes
from holdfast.adapters.kubernetes.nodes.node import UNKNOWN, Conventions, NodeState, arrivals
from holdfast.adapters.kubernetes.nodes.state import ClusterMemory, Memory
from holdfast.adapters.kubernetes.nodes.views import (
    LastHeartbeats,
    agent_heartbeat_at,
    followed_since,
    group_of,
    instance_type_of,
    is_fenced,
    kubelet_answered_at,
    leaving_view,
    node_view,
)
from holdfast.adapters.kubernetes.settings import KubernetesSettings
from holdfast.decisions.lifecycle import waits_for_jobs
from holdfast.decisions.requested_checks import awaits_check
from holdfast.decisions.succession import LeavingNode, is_same_machine, undecided
from holdfast.model.actions import CloseBreaker, TripBreaker
from holdfast.model.errors import BackendError
from holdfast.model.events import CallFailed
from holdfast.model.names import DeepCheck, Labels
from holdfast.model.nodes import ClusterView, NodeRecord, NodeView, Phase, Pool
from holdfast.model.requests import Request

_CHECKED_AT_ONCE: Final = 8
"""Nodes with a requested check whose pods are listed in one round."""

_COMING: Final = (Phase.JOINING, Phase.REBOOTING)

_Leases = tuple[NodeLease | None, NodeLease | None]
"""Leases of the agent and of the kubelet of a node."""


class KubernetesCluster:
    """``ClusterBackend`` of a Kubernetes cluster; works from ``start`` to ``stop``."""

    def __init__(self, api: Api, settings: KubernetesSettings, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
        self._conventions = Conventions(
            labels=Labels(settings.label_prefix),
            group_labels=settings.group_labels,
            can_check=bool(settings.check.image),
        )
        changed = dependencies.changed
        self._nodes = NodeCache(api, self._conventions, settings.selector, changed)
        self._memory = ClusterMemory(api, settings.namespace, changed)
        self._checks = DeepChecks(
            api, settings.agents_in, settings.check, changed, dependencies.events
        )
        self._agents = LeaseReader(api, settings.agents_in)
        self._kubelets = LeaseReader(api, KUBELETS)
        self._idle = IdleNodes(api, limit=1, own=settings.namespace)
        self._requested = IdleNodes(api, limit=_CHECKED_AT_ONCE, own=settings.namespace)
        self._drift = DriftCorrection(
            self._nodes, self._memory, self._checks, self._conventions, dependencies.events
        )
        self._drainer = Drainer(
            api,
            may_act=dependencies.may_act,
            changed=changed,
            failed=lambda what, error: dependencies.events.emit(CallFailed(what=what, error=error)),
            evicted=dependencies.evicted,
            own=settings.namespace,
            stops_itself=dependencies.stops_itself,
        )
        self._watched: frozenset[str] = frozenset()
        self._left: set[str] = set()
        own = (self._nodes.reflector, self._memory.reflector)
        self._reflectors = (*own, *self._checks.reflectors)
        self._relist = RelistOnElection(self._reflectors, dependencies.elected)
        self._contact = Contact(dependencies.elected)
        self._observed_since: datetime | None = None

    def start(self) -> None:
        """Start the threads; returns at once."""
        for reflector in self._reflectors:
            reflector.start()
        self._drainer.start()

    def stop(self) -> None:
        """Stop the threads after the calls in progress."""
        self._drainer.stop()
        for reflector in self._reflectors:
            reflector.stop()

    def node_states(self) -> Mapping[str, NodeState]:
        """All nodes that the selector matches by name, managed or not."""
        return self._nodes.reflector.objects()

    def find(self, node: str) -> NodeState | None:
        """Return a node, whether or not the selector matches it; None if there is none.

        Raises:
            BackendError: the node could not be read.

        """
        state = self._nodes.state(node)
        return state if state is not None else self._nodes.look_up(node)

    def is_watched(self, node: str) -> bool:
        """Whether a node was in the last snapshot, and so is managed."""
        return node in self._watched

    @property
    def synced(self) -> bool:
        """Whether all caches were complete at least once."""
        return all(reflector.synced for reflector in self._reflectors)

    @property
    def errors(self) -> tuple[str, ...]:
        """Current errors of the caches."""
        return tuple(reflector.error for reflector in self._reflectors if reflector.error)

    def snapshot(self, peer_pools: Collection[Pool] = ()) -> ClusterView:
        """See ``ClusterBackend.snapshot``; the leader corrects drift first."""
        self._relist.run()
        if not self.synced:
            raise BackendError(f"caches not synced yet: {'; '.join(self.errors) or 'retrying'}")
        now = self._dependencies.clock.now()
        self._observed_since = self._contact.begin(now)
        memory = self._memory.read()
        cached_nodes = self._nodes.read(now, memory.retired.values())
        if self._dependencies.may_act():
            self._drift.run(cached_nodes, memory, now)
            memory = self._memory.read()
            cached_nodes = self._nodes.read(now, memory.retired.values())
        views = self._views(cached_nodes, memory, peer_pools, now)
        views += [
            leaving_view(name, one, self._observed_since)
            for name, one in memory.leaving.items()
            if name not in cached_nodes
        ]
        self._watched = frozenset(view.name for view in views)
        self._contact.succeeded()
        return ClusterView(
            nodes=tuple(views),
            breaker=memory.breaker,
            offenders=memory.offenders,
            unreadable=frozenset(k for k, one in cached_nodes.items() if one.parsed.is_damaged),
            read_at=now,
        )

    def put(self, node: str, record: NodeRecord) -> None:
        """See ``ClusterBackend.put``."""
        if not self._dependencies.may_act():
            raise BackendError(f"node {node}: another replica has become the leader")
        if record.phase is Phase.REPLACING:  # before: the node may vanish from then on
            self._nodes.check_unchanged(node)
            self._memory.put_leaving(node, self._leaving(node, record))
        try:
            self._nodes.write_record(node, record, self._dependencies.clock.now())
        except NotFound:
            if record.phase is not Phase.REPLACING:
                raise

    def clear_request(self, node: str, request_id: str) -> None:
        """See ``ClusterBackend.clear_request``."""
        now, settings = self._dependencies.clock.now(), self._conventions
        with suppress(NotFound):
            self._nodes.write(
                node,
                now,
                lambda state, parsed: request_patch(state, parsed, request_id, settings),
            )

    def request_check(self, node: str, request: Request) -> bool:
        """See ``ClusterBackend.request_check``; without an image no check is started."""
        if not self._conventions.can_check:
            return False
        now = self._dependencies.clock.now()
        self._nodes.write(
            node, now, lambda state, parsed: new_request_patch(state, parsed, request)
        )
        return True

    def drain(self, node: str) -> None:
        """See ``ClusterBackend.drain``."""
        self._drainer.drain(node)

    def start_check(self, node: str, check_id: str, kinds: tuple[DeepCheck, ...]) -> None:
        """See ``ClusterBackend.start_check``."""
        self._checks.begin(node, check_id, kinds)

    def start_pair(self, node: str, partner: str, test_id: str) -> None:
        """See ``ClusterBackend.start_pair``."""
        state = self._nodes.state(partner)
        if state is None or not state.address:
            raise BackendError(f"node {partner} has no InternalIP address")
        self._checks.start_pair(PairIds(node, partner, test_id), state.address)

    def retire(self, node: str) -> None:
        """See ``ClusterBackend.retire``; the Node object is deleted if it is still there."""
        leaving = self._memory.read().leaving.get(node)
        state = self._nodes.state(node)
        is_there = state is not None and is_same_machine(state.provider_id, leaving)
        removed: NodeState | LeavingNode | None = state if is_there else leaving
        if removed is None:
            return
        self._left.add(node)
        self._memory.put_retired(node, removed.uid)
        self._nodes.remove(node, removed.uid)

    def trip_breaker(self, trip: TripBreaker) -> None:
        """See ``ClusterBackend.trip_breaker``."""
        self._memory.trip_breaker(trip.reason, self._dependencies.clock.now())

    def close_breaker(self, close: CloseBreaker) -> None:
        """See ``ClusterBackend.close_breaker``."""
        self._memory.close_breaker(close.tripped_at, self._dependencies.clock.now())

    def remember_offender(self, provider_id: str) -> None:
        """See ``ClusterBackend.remember_offender``."""
        self._memory.remember_offender(provider_id)

    def _views(
        self,
        cached_nodes: Mapping[str, CachedNode],
        memory: Memory,
        peer_pools: Collection[Pool],
        now: datetime,
    ) -> list[NodeView]:
        """Return the views of managed nodes. Views of healthy nodes are reused."""
        views, records = [], {}
        oldest = now - self._dependencies.fresh
        states = (
            {name: cached.state for name, cached in cached_nodes.items()} if memory.leaving else {}
        )
        waiting = undecided(arrivals(states.values()), memory.leaving)
        for name, cached in cached_nodes.items():
            view = cached.view
            if name in waiting:
                continue
            is_lendable = bool(peer_pools) and _pool(cached.state) in peer_pools
            if view is not None and not is_lendable and self._is_fresh(view, oldest, now):
                views.append(view)
            elif (cached.is_managed or name in memory.leaving) and not cached.parsed.is_damaged:
                records[name] = cached.record(memory.leaving.get(name))
        self._checks.refresh(now)
        leases = self._leases(cached_nodes, records, now)
        self._follow(cached_nodes, records)
        idle, watched = self._idle_among(cached_nodes, records, peer_pools, now)
        for name, record in records.items():
            cached = cached_nodes[name]
            cached.view = self._view(cached, record, leases[name], now, is_idle=name in idle)
            views.append(cached.view)
            if name in watched or not _is_settled(cached, record):
                cached.view = None
        return views

    def _idle_among(
        self,
        cached_nodes: Mapping[str, CachedNode],
        records: Mapping[str, NodeRecord],
        peer_pools: Collection[Pool],
        now: datetime,
    ) -> tuple[frozenset[str], set[str]]:
        """Return the nodes known to have no pods, and all nodes of which that matters."""
        due, requested = set(), set()
        for name, record in records.items():
            cached = cached_nodes[name]
            is_lendable = record.phase is Phase.SCHEDULABLE and _pool(cached.state) in peer_pools
            if awaits_check(record, cached.parsed.request):
                requested.add(name)
            elif is_lendable or self._is_due(group_of(cached.state), record, now):
                due.add(name)
        idle = self._idle.among(due, cached_nodes)
        return idle | self._requested.among(requested, cached_nodes), due | requested

    def _leases(
        self,
        cached_nodes: Mapping[str, CachedNode],
        records: Mapping[str, NodeRecord],
        now: datetime,
    ) -> Mapping[str, _Leases]:
        """Return the leases of the agents, and of kubelets whose node is ``Unknown``."""
        coming = [name for name, record in records.items() if record.phase in _COMING]
        lost = [name for name in records if cached_nodes[name].state.ready == UNKNOWN]
        agents = self._agents.of(records, now, at_once=coming)
        kubelets = self._kubelets.of(lost, now)
        self._agents.forget_others(cached_nodes)
        self._kubelets.forget_others(lost)
        return {name: (agents.get(name), kubelets.get(name)) for name in records}

    def _is_fresh(self, view: NodeView, oldest: datetime, now: datetime) -> bool:
        """Whether a view may be reused."""
        has_heartbeat = view.heartbeat_at is not None and view.heartbeat_at > oldest
        return has_heartbeat and not self._is_due(view.group, view.record, now)

    def _is_due(self, group: str, record: NodeRecord, now: datetime) -> bool:
        is_due = self._dependencies.is_check_due
        return is_due is not None and is_due(group, record, now)

    def _view(
        self,
        cached: CachedNode,
        record: NodeRecord,
        leases: _Leases,
        now: datetime,
        *,
        is_idle: bool,
    ) -> NodeView:
        name, (agent, kubelet) = cached.state.name, leases
        since = followed_since(record, cached.first_seen, self._observed_since)
        return node_view(
            cached.state,
            cached.parsed,
            record,
            heartbeats=LastHeartbeats(
                agent_at=agent_heartbeat_at(cached.state, cached.parsed, record, agent, since),
                kubelet_at=kubelet_answered_at(cached.state, record, now, kubelet),
                observed_since=self._observed_since,
            ),
            jobs=self._drainer.jobs(name) if waits_for_jobs(record) else self._requested.pods(name),
            check=self._checks.state(name, record),
            pair=self._checks.pair_outcome(name, record),
            is_idle=is_idle,
        )

    def _follow(
        self, cached_nodes: Mapping[str, CachedNode], records: Mapping[str, NodeRecord]
    ) -> None:
        """Follow the pods of the nodes where they matter."""
        fenced = {
            name: is_fenced(cached_nodes[name].state, cached_nodes[name].parsed, record)
            for name, record in records.items()
        }
        followed = {
            name: off for name, off in fenced.items() if off or waits_for_jobs(records[name])
        }
        emptied = {name for name in followed if records[name].phase is Phase.DRAINING}
        self._drainer.follow({**self._deleted_nodes(cached_nodes), **followed}, emptied)
        for name, record in records.items():
            if waits_for_jobs(record) and (
                cached_nodes[name].parsed.pause_reason or record.phase is not Phase.DRAINING
            ):
                self._drainer.stop_evicting(name)

    def _deleted_nodes(self, cached_nodes: Mapping[str, CachedNode]) -> Mapping[str, bool]:
        """Return replaced nodes whose object is deleted but not their pods, as fenced.

        Kubernetes itself would delete such pods a minute later, which would delay their jobs.
        """
        leaving = self._memory.read().leaving
        self._left -= cached_nodes.keys() - leaving.keys()  # another machine has the name
        for name, one in leaving.items():
            if one.record.remediation is not None and one.record.remediation.ordered_at is not None:
                self._left.add(name)
        self._left = {name for name in self._left if self._drainer.jobs(name)}
        return {name: True for name in self._left if name not in cached_nodes}

    def _leaving(self, node: str, record: NodeRecord) -> LeavingNode:
        """Return what must outlive the Node object of a node that will be replaced."""
        known = self._memory.read().leaving.get(node)
        state = self._nodes.state(node)
        if state is not None and is_same_machine(state.provider_id, known):
            return LeavingNode(
                record=record,
                provider_id=state.provider_id,
                group=state.group,
                uid=state.uid,
                addresses=state.addresses,
            )
        if known is None:
            raise BackendError(f"node {node} not replaced: it no longer exists")
        return replace(known, record=record)


def _pool(state: NodeState) -> Pool:
    return (group_of(state), instance_type_of(state))


def _is_settled(cached: CachedNode, record: NodeRecord) -> bool:
    """Whether the view of a node can be reused until an event."""
    has_heartbeat = cached.state.ready != UNKNOWN
    return record.phase is Phase.SCHEDULABLE and cached.parsed.record is not None and has_heartbeat
