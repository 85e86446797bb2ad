"""The nodes of a Slurm cluster."""

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from holdfast.adapters.slurm.commands import Slurm
from holdfast.adapters.slurm.reports import Heard, Reports
from holdfast.adapters.slurm.settings import SlurmSettings
from holdfast.adapters.slurm.state import Memory, SlurmStore
from holdfast.adapters.slurm.text import JobFacts
from holdfast.adapters.slurm.upkeep import ENTRY, REPORT, Upkeep
from holdfast.adapters.slurm.views import (
    Known,
    closing_reason,
    heard_at,
    is_followed,
    is_to_open,
    known_nodes,
    node_view,
    record_of,
    remembered,
    request_of,
)
from holdfast.adapters.slurm.watch import FolderWatch, NodeWatch
from holdfast.model.actions import TripBreaker
from holdfast.model.errors import BackendError
from holdfast.model.nodes import Breaker, ClusterView, NodeRecord, Phase
from holdfast.ports.clock import Clock
from holdfast.ports.events import EventSink


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a cluster needs beside Slurm."""

    clock: Clock
    events: EventSink
    """Is told of what cannot be used, and of calls that failed beside the rounds."""

    changed: Callable[[], None]
    """Called, from any thread, when there may be something to decide."""

    may_act: Callable[[], bool]
    """Whether this process may change the cluster just now; a reader never may."""


class SlurmCluster:
    """A ``ClusterBackend``; works from ``start`` to ``stop``.

    Apart from the threads that notice changes, it is for one thread.
    """

    def __init__(self, settings: SlurmSettings, store: SlurmStore, around: Surroundings) -> None:
        self._around = around
        self._store = store
        self._slurm = Slurm(settings.conf, settings.timeout)
        self._reports = Reports(settings.report_dir)
        self._looking = threading.Lock()
        self._report_error = ""
        self._nodes = NodeWatch(self._slurm, settings, around.clock, around.changed)
        self._news = FolderWatch(settings.report_dir, store.log, self._look, around.changed)
        self._upkeep = Upkeep(
            partial(self._mark, was_closed=False), store, around.clock, around.events
        )
        self._began = around.clock.now()
        self._first_seen: dict[str, NodeRecord] = {}
        self._known: dict[str, Known] = {}
        self._jobs: dict[str, list[JobFacts]] = {}
        self._unmoved: set[str] = set()

    def start(self) -> None:
        """Begin to read; returns at once."""
        self._nodes.start()
        self._news.start()

    def stop(self) -> None:
        """End the threads; a command in progress is waited for."""
        self._news.stop()
        self._nodes.stop()

    @property
    def synced(self) -> bool:
        """Everything was read at least once."""
        return self._nodes.synced

    @property
    def errors(self) -> tuple[str, ...]:
        """Why something is not kept up to date at the moment."""
        return tuple(error for error in (self._nodes.error, self._report_error) if error)

    def snapshot(self) -> ClusterView:
        """See ``ClusterBackend.snapshot``; who may act puts marks right before."""
        facts = self._nodes.facts()
        heard = self._heard()
        memory = self._store.read()
        self._known = known_nodes(facts, heard, memory)
        if self._around.may_act() and self._upkeep.run(facts, self._known, self._damaged(memory)):
            self._nodes.spoil()
        now = self._around.clock.now()
        records = {name: self._record(known) for name, known in self._known.items()}
        self._first_seen = {
            name: records[name] for name, one in self._known.items() if one.remembered is None
        }
        self._count([name for name, record in records.items() if is_followed(record)])
        views = [
            node_view(
                known,
                records[name],
                memory,
                heard=heard_at(
                    known, records[name], now, self._nodes.answered_at(name) or self._began
                ),
                jobs=tuple(job.id for job in self._jobs.get(name, ())),
                now=now,
            )
            for name, known in self._known.items()
        ]
        return ClusterView(
            nodes=tuple(views),
            breaker=memory.breaker,
            offenders=memory.offenders,
            unreadable=memory.unreadable,
        )

    def put(self, node: str, record: NodeRecord) -> None:
        """See ``ClusterBackend.put``; a node that somebody else has closed is left to them."""
        known = self._of(node)
        was_closed = (
            known.remembered is not None and known.remembered.record.phase is not Phase.SCHEDULABLE
        )
        stored = remembered(known, record)
        self._store.put_node(node, stored)
        self._known[node] = Known(
            name=node, facts=known.facts, heard=known.heard, remembered=stored
        )
        if known.facts is not None and (was_closed or record.phase is not Phase.SCHEDULABLE):
            self._mark(node, record, was_closed=was_closed)

    def clear_request(self, node: str, request_id: str) -> None:
        """See ``ClusterBackend.clear_request``; a reason is given way to ours."""
        self._store.clear_request(node, request_id)
        known = self._known.get(node)
        if known is None or known.facts is None or known.remembered is None:
            return
        asked = request_of(known.facts, self._around.clock.now())
        if asked is not None and asked.id == request_id:
            self._mark(node, known.remembered.record, was_closed=True)

    def drain(self, node: str) -> None:
        """See ``ClusterBackend.drain``: batch jobs are requeued, which ends all of their steps.

        Others are left alone. Of a node that does not answer none is requeued: a step that runs on
        there must not meet the next one of its job.
        """
        known = self._known.get(node)
        if known is None or known.facts is None or not known.facts.is_heard:
            return
        for job in self._jobs.get(node, ()):
            is_asked = job.state == "RUNNING" and job.id not in self._unmoved
            if is_asked and not self._slurm.requeue(job.id):
                self._unmoved.add(job.id)

    def begin_check(self, node: str, check_id: str) -> None:
        """See ``ClusterBackend.begin_check``.

        Raises:
            BackendError: always; requests for one are not taken, so none is waited for.

        """
        raise BackendError(f"{node}: there is no deep health check on Slurm ({check_id})")

    def retire(self, node: str) -> None:
        """See ``ClusterBackend.retire``."""
        self._reports.forget(node)
        self._look()
        self._store.forget_node(node)

    def trip_breaker(self, trip: TripBreaker) -> None:
        """See ``ClusterBackend.trip_breaker``."""
        if self._store.read().breaker.tripped_at is None:
            now = self._around.clock.now()
            self._store.put_breaker(Breaker(tripped_at=now, reason=trip.reason))

    def remember_offender(self, provider_id: str) -> None:
        """See ``ClusterBackend.remember_offender``."""
        self._store.add_offender(provider_id)

    def _of(self, node: str) -> Known:
        known = self._known.get(node)
        if known is None:
            raise BackendError(f"the node {node} is not known to Slurm any more")
        return known

    def _mark(self, node: str, record: NodeRecord, *, was_closed: bool) -> None:
        """Close or open a node to match its record.

        What was read of it a moment ago may be so no more: a person may have closed it since.
        """
        facts = self._slurm.nodes(node)[node]
        reason = closing_reason(facts, record)
        if reason is not None:
            self._slurm.close_node(node, reason)
        elif is_to_open(facts, record, was_closed=was_closed):
            self._slurm.open_node(node)
        self._nodes.spoil()

    def _record(self, known: Known) -> NodeRecord:
        if known.remembered is None and known.name in self._first_seen:
            return self._first_seen[known.name]
        return record_of(known, self._around.clock.now())

    def _count(self, followed: list[str]) -> None:
        """Note the jobs on the nodes where they matter."""
        found: dict[str, list[JobFacts]] = defaultdict(list)
        for job in self._slurm.jobs_on(followed) if followed else ():
            for node in job.nodes:
                found[node].append(job)
        self._jobs = found
        self._unmoved &= {job.id for jobs in found.values() for job in jobs}

    def _look(self) -> None:
        """Look for news among the reports, and wake whoever decides if there is any."""
        with self._looking:
            try:
                is_new = self._reports.look(self._around.clock.now())
            except BackendError as error:
                is_new, self._report_error = not self._report_error, str(error)
            else:
                is_new, self._report_error = is_new or bool(self._report_error), ""
        if is_new:
            self._around.changed()

    def _heard(self) -> Mapping[str, Heard]:
        with self._looking:
            with suppress(BackendError):  # the thread tells of it; what was heard before holds
                self._reports.look(self._around.clock.now())
            return self._reports.heard()

    def _damaged(self, memory: Memory) -> dict[str, str]:
        with self._looking:
            reports = self._reports.unreadable()
        return {
            **dict.fromkeys(reports, REPORT),
            **dict.fromkeys(memory.unreadable, ENTRY),
        }
