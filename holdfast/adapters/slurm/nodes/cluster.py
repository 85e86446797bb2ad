"""Cluster backend: the nodes of a Slurm cluster."""

import threading
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Final

from holdfast.adapters.slurm.commands.execution import Slurm
from holdfast.adapters.slurm.commands.node_text import JobFacts, NodeFacts
from holdfast.adapters.slurm.commands.reasons import our_reason
from holdfast.adapters.slurm.nodes.deep_checks import DeepChecks, requested_of
from holdfast.adapters.slurm.nodes.dependencies import Dependencies
from holdfast.adapters.slurm.nodes.drift import ENTRY, REPORT, Damage, DriftCorrection
from holdfast.adapters.slurm.nodes.node_state import NodeState
from holdfast.adapters.slurm.nodes.preparation import Preparation
from holdfast.adapters.slurm.nodes.reports import ReceivedReport, Reports, verdict_name
from holdfast.adapters.slurm.nodes.state import Memory, SlurmStore
from holdfast.adapters.slurm.nodes.views import (
    Known,
    closing_reason,
    is_marked,
    is_renewed,
    is_to_open,
    known_nodes,
    last_response_at,
    node_view,
    record_of,
    remembered,
    request_of,
)
from holdfast.adapters.slurm.nodes.watch import FolderWatch, NodeWatch
from holdfast.adapters.slurm.settings import SlurmSettings
from holdfast.decisions.lifecycle import waits_for_jobs
from holdfast.decisions.requested_checks import awaits_check
from holdfast.model.actions import CloseBreaker, TripBreaker
from holdfast.model.errors import BackendError
from holdfast.model.events import CallFailed
from holdfast.model.names import DeepCheck
from holdfast.model.nodes import Breaker, ClusterView, NodeRecord, NodeView, Phase, Pool
from holdfast.model.requests import Request

_UNREADY: Final = "its machine is new, and the command after_replacement has not succeeded yet"


class SlurmCluster:
    """A ``ClusterBackend``; works from ``start`` to ``stop``.

    Apart from the threads that watch for changes, it is for one thread.
    """

    def __init__(self, settings: SlurmSettings, store: SlurmStore, around: Dependencies) -> None:
        self._around = around
        self._store = store
        self._slurm = Slurm(settings.conf, settings.timeout)
        self._reports = Reports(settings.report_dir, around.trust)
        self._refresh_lock = threading.Lock()
        self._report_error = ""
        self._nodes = NodeWatch(self._slurm, settings, around.clock, around.changed)
        self._report_watch = FolderWatch(
            settings.report_dir, store.log, self._refresh, around.changed
        )
        self._drift = DriftCorrection(
            partial(self._mark, was_closed=False), self._clear, store, around.clock, around.events
        )
        self._checks = DeepChecks(settings, around.clock, around.events)
        self._preparation = Preparation(settings, around.changed)
        self._problems: dict[str, str] = {}
        self._began = around.clock.now()
        self._first_seen: dict[str, NodeRecord] = {}
        self._known: dict[str, Known] = {}
        self._views: dict[str, NodeView] = {}
        self._jobs: dict[str, list[JobFacts]] = {}
        self._not_requeueable: set[str] = set()
        self._peer_pools: Collection[Pool] = ()

    def start(self) -> None:
        """Start to read nodes and reports; returns at once."""
        self._nodes.start()
        self._report_watch.start()

    def stop(self) -> None:
        """Stop the threads, after the command in progress has ended."""
        self._report_watch.stop()
        self._nodes.stop()

    @property
    def synced(self) -> bool:
        """Whether everything was read at least once."""
        return self._nodes.synced

    @property
    def errors(self) -> tuple[str, ...]:
        """Return the errors of sources that cannot be read now."""
        return tuple(error for error in (self._nodes.error, self._report_error) if error)

    def node_state(self, node: str) -> NodeState:
        """Return the current state of a node, as jobs need it."""
        known = self._known.get(node)
        record = None if known is None else self._record(known)
        return NodeState(facts=self._nodes.facts().get(node), record=record)

    def idle_nodes(self) -> frozenset[str]:
        """Return nodes without work, awake or asleep, whatever is planned for them."""
        facts = self._nodes.facts()
        return frozenset(name for name, one in facts.items() if one.is_free)

    def returning_nodes(self) -> frozenset[str]:
        """Return nodes that are out of service until they are repaired."""
        records = {name: self._record(known) for name, known in self._known.items()}
        return frozenset(
            name for name, one in records.items() if one.phase is not Phase.SCHEDULABLE
        )

    def snapshot(self, peer_pools: Collection[Pool] = ()) -> ClusterView:
        """See ``ClusterBackend.snapshot``; a process that may act corrects drift of marks first."""
        self._peer_pools = peer_pools
        facts = self._nodes.facts()
        received = self._received()
        memory = self._store.read()
        self._known = known_nodes(facts, received, memory)
        self._check_up(facts, memory)
        now = self._around.clock.now()
        records = {name: self._record(known) for name, known in self._known.items()}
        self._first_seen = {
            name: records[name] for name, one in self._known.items() if one.remembered is None
        }
        followed = (
            name
            for name, record in records.items()
            if waits_for_jobs(record) or awaits_check(record, memory.requests.get(name))
        )
        self._count([*followed])
        self._views = {
            name: self._view(one, records[name], memory, now) for name, one in self._known.items()
        }
        return ClusterView(
            nodes=tuple(self._views.values()),
            breaker=memory.breaker,
            offenders=memory.offenders,
            unreadable=memory.unreadable,
            read_at=now,
        )

    def _view(self, known: Known, record: NodeRecord, memory: Memory, now: datetime) -> NodeView:
        name, facts = known.name, known.facts
        view = node_view(
            known,
            record,
            memory,
            heartbeat_at=last_response_at(
                known, record, now, self._nodes.answered_at(name), self._began
            ),
            jobs=tuple(job.id for job in self._jobs.get(name, ())),
            now=now,
            check=self._checks.result(name, record),
            pair=self._checks.pair_outcome(name, record),
        )
        view = replace(
            view,
            check_began_at=self._checks.began_at(name, record),
            check_pending=self._checks.pending(name, record),
        )
        if view.heartbeat_at is not None and is_renewed(record) and not self._is_prepared(known):
            # Restart its join timeout: the site's preparation may take any time.
            joins = replace(record, phase_since=now)
            return replace(
                view, heartbeat_at=None, record=joins, pause_reason=view.pause_reason or _UNREADY
            )
        # Nodes are read before jobs: one may have begun on a node that was still idle.
        if facts is not None and facts.is_idle and not view.running_jobs:
            is_lendable = record.phase is Phase.SCHEDULABLE and self._pool(name) in self._peer_pools
            is_requested = awaits_check(record, view.request)
            is_due = self._is_due(facts.partition, record, now)
            return replace(view, is_idle=is_lendable or is_requested or is_due)
        return view

    def _is_due(self, partition: str, record: NodeRecord, now: datetime) -> bool:
        is_due = self._around.is_check_due
        return is_due is not None and is_due(partition, record, now)

    def _pool(self, node: str) -> Pool:
        facts = self._known[node].facts
        return ("" if facts is None else facts.partition, "")

    def _is_prepared(self, known: Known) -> bool:
        """Whether the site's preparation of a new machine is done."""
        node, machine = known.name, known.machine
        if self._preparation.is_done(node, machine):
            return True
        if self._around.may_act():
            self._preparation.begin(node, machine)
            problem = self._preparation.error(node, machine)
            if problem and self._problems.get(node) != problem:
                what = f"the command after the replacement of {node}"
                self._around.events.emit(CallFailed(what=what, error=problem))
            self._problems[node] = problem
        return False

    def _check_up(self, facts: Mapping[str, NodeFacts], memory: Memory) -> None:
        """Track deep health checks, and correct marks."""
        if not self._around.may_act():
            return
        found = (requested_of(name, one.record) for name, one in memory.nodes.items())
        expected = [one for one in found if one is not None]
        self._checks.refresh(expected)
        opened = self._checks.opened(expected)
        if self._drift.run(facts, self._known, self._damaged(memory), opened):
            self._nodes.invalidate()

    def put(self, node: str, record: NodeRecord) -> None:
        """See ``ClusterBackend.put``; a node that somebody else has closed is left alone."""
        known = self._of(node)
        was_closed = (
            known.remembered is not None and known.remembered.record.phase is not Phase.SCHEDULABLE
        )
        stored = remembered(known, record)
        self._store.put_node(node, stored)
        self._known[node] = replace(known, remembered=stored)
        if known.facts is not None and (was_closed or record.phase is not Phase.SCHEDULABLE):
            self._mark(node, record, was_closed=was_closed)

    def clear_request(self, node: str, request_id: str) -> None:
        """See ``ClusterBackend.clear_request``; our reason replaces the requested one."""
        self._store.clear_request(node, request_id)
        known = self._known.get(node)
        if known is None or known.facts is None or known.remembered is None:
            return
        requested = request_of(known.facts, self._around.clock.now())
        if requested is not None and requested.id == request_id:
            self._mark(node, known.remembered.record, was_closed=True, cleared=request_id)

    def request_check(self, node: str, request: Request) -> bool:
        """See ``ClusterBackend.request_check``."""
        if node not in self._store.read().requests:
            self._store.put_request(node, request)
        return True

    def drain(self, node: str) -> None:
        """See ``ClusterBackend.drain``: batch jobs are requeued, which ends all of their steps.

        Other jobs are left alone, as are those that the job loop stops. On a node that does not
        respond, no job is requeued: a step that still runs there must not meet the job's next step.
        """
        known = self._known.get(node)
        if known is None or known.facts is None or not known.facts.has_heartbeat:
            return
        for job in self._jobs.get(node, ()):
            if self._around.stops_itself(job.id):
                continue
            if job.state != "RUNNING" or job.id in self._not_requeueable:
                continue
            view = replace(self._views[node], record=self._record(known))
            self._around.displaces(job.id, view)
            if not self._slurm.requeue(job.id):
                self._not_requeueable.add(job.id)

    def start_check(self, node: str, check_id: str, kinds: tuple[DeepCheck, ...]) -> None:  # noqa: ARG002 - the record has both
        """See ``ClusterBackend.start_check``."""
        self._begin(node)

    def start_pair(self, node: str, partner: str, test_id: str) -> None:  # noqa: ARG002 - the record has both
        """See ``ClusterBackend.start_pair``."""
        self._begin(node)

    def _begin(self, node: str) -> None:
        """Begin the check that the record of a node names."""
        requested = requested_of(node, self._record(self._of(node)))
        if requested is not None:
            self._checks.begin(requested, [self._nodes.read_one(one) for one in requested.nodes])
            self._nodes.invalidate()

    def retire(self, node: str) -> None:
        """See ``ClusterBackend.retire``."""
        self._reports.forget(node)
        self._reports.forget(verdict_name(node))
        self._refresh()
        self._store.forget_node(node)

    def trip_breaker(self, trip: TripBreaker) -> None:
        """See ``ClusterBackend.trip_breaker``."""
        if self._store.read().breaker.tripped_at is None:
            now = self._around.clock.now()
            self._store.put_breaker(Breaker(tripped_at=now, reason=trip.reason))

    def close_breaker(self, close: CloseBreaker) -> None:
        """See ``ClusterBackend.close_breaker``."""
        if self._store.read().breaker.tripped_at == close.tripped_at:
            self._store.put_breaker(Breaker(reset_at=self._around.clock.now()))

    def remember_offender(self, provider_id: str) -> None:
        """See ``ClusterBackend.remember_offender``."""
        self._store.add_offender(provider_id)

    def _of(self, node: str) -> Known:
        known = self._known.get(node)
        if known is None:
            raise BackendError(f"Slurm no longer lists node {node}")
        return known

    def _mark(self, node: str, record: NodeRecord, *, was_closed: bool, cleared: str = "") -> None:
        """Close or open a node to match its record.

        The node is read again before a change: a person may have closed it since the last read.
        """
        facts, now = self._nodes.cached(node), self._around.clock.now()
        if facts and is_marked(facts, record, now, was_closed=was_closed, cleared=cleared):
            return
        facts = self._nodes.read_one(node)
        reason = closing_reason(facts, record, cleared)
        if reason is not None:
            self._slurm.close_node(node, reason)
        elif is_to_open(facts, record, now, was_closed=was_closed):
            self._slurm.open_node(node)
        self._nodes.invalidate()

    def _clear(self, node: str, record: NodeRecord) -> None:
        """Make Slurm forget the jobs that ended with the previous machine.

        A node that somebody else has closed keeps its reason, and stays closed, as for a request.
        """
        facts = self._nodes.read_one(node)
        self._slurm.down_node(node, facts.reason.text if facts.keeps_reason else our_reason(record))
        self._nodes.invalidate()
        self._mark(node, record, was_closed=False)

    def _record(self, known: Known) -> NodeRecord:
        if known.remembered is None and known.name in self._first_seen:
            return self._first_seen[known.name]
        return record_of(known, self._around.clock.now())

    def _count(self, followed: list[str]) -> None:
        """Record which jobs run on the nodes where that matters."""
        found: dict[str, list[JobFacts]] = defaultdict(list)
        jobs = self._slurm.jobs_on(followed) if followed else []
        left = self._around.left(jobs)
        for job in jobs:
            for node in job.nodes:
                if (job.id, node) not in left:
                    found[node].append(job)
        self._jobs = found
        self._not_requeueable &= {job.id for jobs in found.values() for job in jobs}

    def _refresh(self) -> None:
        """Look for new reports, and trigger a round if there are any."""
        with self._refresh_lock:
            try:
                is_new = self._reports.refresh(self._around.clock.now())
            except BackendError as error:
                is_new, self._report_error = not self._report_error, str(error)
            else:
                is_new, self._report_error = is_new or bool(self._report_error), ""
        if is_new:
            self._around.changed()

    def _received(self) -> Mapping[str, ReceivedReport]:
        with self._refresh_lock:
            with suppress(BackendError):  # the thread reports it; earlier reports still hold
                self._reports.refresh(self._around.clock.now())
            return self._reports.received()

    def _damaged(self, memory: Memory) -> Iterator[Damage]:
        with self._refresh_lock:
            skipped = self._reports.skipped()
        for name, why in skipped.items():
            yield Damage(node=name, what=REPORT, why=why)
        for name in memory.unreadable:
            yield Damage(node=name, what=ENTRY)
