"""Cluster backend: the nodes of the local platform."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from holdfast.adapters.local.checks import LocalChecks
from holdfast.adapters.local.machine import LocalMachine, Power
from holdfast.adapters.local.machines import LocalMachines
from holdfast.adapters.local.store import LocalStore
from holdfast.engine.repeats import RepeatLimiter
from holdfast.kit.bounded_files import read_bounded
from holdfast.kit.serial import parse_value
from holdfast.model.actions import CloseBreaker, TripBreaker
from holdfast.model.events import CallFailed
from holdfast.model.jobs import JobPhase, JobRecord
from holdfast.model.names import DeepCheck, Reason
from holdfast.model.nodes import Breaker, ClusterView, NodeRecord, NodeView, Phase, Pool
from holdfast.model.report import REPORT_LIMIT, NodeReport
from holdfast.model.requests import Request
from holdfast.ports.clock import Clock
from holdfast.ports.events import EventSink

POLL: Final = timedelta(milliseconds=500)
"""Poll interval of the heartbeats, and precision of ``NodeView.heartbeat_at``."""

_STALLED: Final = 4
"""Number of missed polls after which this process, not the agents, must have been suspended."""


_HEARTBEAT_BYTES: Final = 256
_SHOWN_CHARS: Final = 200

_REMOVED: Final = "removed from the cluster on request"


@dataclass(slots=True)
class _Heartbeat:
    text: str
    seen_at: datetime


class LocalCluster:
    """A ``ClusterBackend`` over the machines of one run."""

    def __init__(
        self,
        machines: LocalMachines,
        store: LocalStore,
        checks: LocalChecks,
        clock: Clock,
        events: EventSink,
    ) -> None:
        """Use these machines and stores; ``events`` takes reports of files that are skipped."""
        self._machines = machines
        self._store = store
        self._checks = checks
        self._clock = clock
        self._repeats = RepeatLimiter(events)
        self._reports: dict[str, NodeReport] = {}
        """The last valid report of each machine."""
        self._heartbeats: dict[str, _Heartbeat] = {}
        self._polled_at: datetime | None = None
        self.stopping = ""
        """Why all nodes are being shut down; empty if they are not."""

    def snapshot(self, peer_pools: Collection[Pool] = ()) -> ClusterView:  # noqa: ARG002 - knows of every node
        """See ``ClusterBackend.snapshot``."""
        at, store = self.poll(), self._store
        requests = store.requests()
        holds = store.holds()
        running = self._running_jobs()
        groups = self._store.node_groups()
        leaving = self._store.leaving()
        views = []
        for name, (provider_id, replaces, record) in self._store.nodes().items():
            machine = self._machines.get(name)
            is_on = machine is not None and machine.power is Power.ON
            report = self._report(machine) if machine is not None and is_on else None
            heartbeat = self._heartbeats.get(name)
            views.append(
                NodeView(
                    name=name,
                    provider_id=provider_id,
                    record=record,
                    group=groups.get(name, ""),
                    boot_id=machine.boot_id if machine is not None else "",
                    faults=report.faults if report is not None else (),
                    suspects=report.suspects if report is not None else (),
                    drill_until=report.drill_until if report is not None else None,
                    heartbeat_at=heartbeat.seen_at if heartbeat is not None else None,
                    powered_on=None if machine is None else _powered_on(machine),
                    request=requests.get(name),
                    leaving=_REMOVED if name in leaving else self.stopping,
                    leaving_reason=(
                        Reason.NODE_REMOVED if name in leaving else Reason.MANAGER_STOPPED
                    ),
                    pause_reason=holds.get(name, ""),
                    running_jobs=running.get(name, ()),
                    is_idle=record.phase is Phase.SCHEDULABLE and name not in running,
                    check=self._checks.result(name, record),
                    pair=self._checks.pair_outcome(name, record),
                    replaces=replaces,
                )
            )
        return ClusterView(
            nodes=tuple(views), breaker=store.breaker(), offenders=store.offenders(), read_at=at
        )

    def poll(self) -> datetime:
        """Read the heartbeats, and return the time by which they are dated.

        Call at least every ``POLL``.
        """
        now = self._clock.now()
        is_stalled = self._polled_at is not None and now - self._polled_at > _STALLED * POLL
        self._polled_at = now
        for machine in self._machines.all():
            known = self._heartbeats.get(machine.name)
            if machine.power is Power.OFF:
                continue  # the last heartbeat shows since when it is off
            text = self._heartbeat(machine, known)
            if text is None or machine.power is Power.BOOTING:
                self._heartbeats.pop(machine.name, None)
            elif known is None or known.text != text:
                self._heartbeats[machine.name] = _Heartbeat(text, now)
            elif is_stalled or known.seen_at > now:
                known.seen_at = now  # nobody polled, so the agent may have been alive
        return now

    def put(self, node: str, record: NodeRecord) -> None:
        """See ``ClusterBackend.put``."""
        self._store.put_node(node, record)

    def clear_request(self, node: str, request_id: str) -> None:
        """See ``ClusterBackend.clear_request``."""
        self._store.clear_request(node, request_id)

    def request_check(self, node: str, request: Request) -> bool:
        """See ``ClusterBackend.request_check``."""
        if node not in self._store.requests():
            self._store.put_request(node, request)
        return True

    def drain(self, node: str) -> None:
        """See ``ClusterBackend.drain``: the job loop stops jobs on a draining node by itself."""

    def start_check(self, node: str, check_id: str, kinds: tuple[DeepCheck, ...]) -> None:  # noqa: ARG002 - there is one check
        """See ``ClusterBackend.start_check``."""
        machine = self._machines.get(node)
        if machine is not None and machine.power is Power.ON:
            self._checks.begin(machine, check_id)

    def start_pair(self, node: str, partner: str, test_id: str) -> None:
        """See ``ClusterBackend.start_pair``."""
        one, other = self._machines.get(node), self._machines.get(partner)
        if one is not None and other is not None and one.power is other.power is Power.ON:
            self._checks.start_pair(one, other, test_id)

    def retire(self, node: str) -> None:
        """See ``ClusterBackend.retire``."""
        self._machines.retire(node)
        self._heartbeats.pop(node, None)
        self._store.remove_node(node)

    def trip_breaker(self, trip: TripBreaker) -> None:
        """See ``ClusterBackend.trip_breaker``."""
        if self._store.breaker().tripped_at is None:
            self._store.put_breaker(Breaker(tripped_at=self._clock.now(), reason=trip.reason))

    def close_breaker(self, close: CloseBreaker) -> None:
        """See ``ClusterBackend.close_breaker``."""
        if self._store.breaker().tripped_at == close.tripped_at:
            self._store.put_breaker(Breaker(reset_at=self._clock.now()))

    def remember_offender(self, provider_id: str) -> None:
        """See ``ClusterBackend.remember_offender``."""
        self._store.add_offender(provider_id)

    def _running_jobs(self) -> dict[str, tuple[str, ...]]:
        """Return the job on each node; a node has one at most.

        One that was exchanged has the job until its rank has ended.
        """
        return {
            node: (name,)
            for name, (_, record, _) in self._store.active_jobs().items()
            if record.phase in (JobPhase.STARTING, JobPhase.RUNNING, JobPhase.STOPPING)
            for node in (*record.placement, *self._left_on(name, record))
        }

    def _left_on(self, job: str, record: JobRecord) -> Iterator[str]:
        """Yield the exchanged nodes on which a rank of the job still runs."""
        for one in record.exchanged:
            machine = self._machines.get(one.node)
            task = machine.task if machine is not None else None
            if task is not None and task.exit_code is None and task.name.startswith(f"{job}/"):
                yield one.node

    def _heartbeat(self, machine: LocalMachine, known: _Heartbeat | None) -> str | None:
        """Return the text of the last heartbeat of this boot; None before the first one."""
        path = machine.directory.heartbeat
        try:
            text = read_bounded(path, _HEARTBEAT_BYTES).decode("utf-8", errors="replace").strip()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._skip(path, error.strerror or str(error))
            return None if known is None else known.text
        return text if text.startswith(machine.boot_id) else None

    def _report(self, machine: LocalMachine) -> NodeReport | None:
        """Return the agent's last valid report of this boot; None before the first one."""
        path = machine.directory.report
        try:
            self._reports[machine.name] = parse_value(NodeReport, read_bounded(path, REPORT_LIMIT))
        except FileNotFoundError:
            return None
        except OSError as error:  # affects this machine only
            self._skip(path, error.strerror or str(error))
        except ValueError as error:
            self._skip(path, str(error))
        report = self._reports.get(machine.name)
        return report if report is not None and report.boot_id == machine.boot_id else None

    def _skip(self, path: Path, why: str) -> None:
        """Report a file that the processes of a machine may write, and that cannot be used."""
        what, error = f"reading {path}", f"{why[:_SHOWN_CHARS]}; the file is skipped"
        self._repeats.emit(CallFailed(what=what, error=error), self._clock.now())


def _powered_on(machine: LocalMachine) -> bool | None:
    return None if machine.power is Power.BOOTING else machine.power is Power.ON
