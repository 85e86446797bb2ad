"""Event loop of ``holdfast launch``: signals, ends of ranks, messages and deadlines."""

import math
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from holdfast.adapters.launch.cgroups import Cgroup
from holdfast.adapters.launch.client import CoordinatorLink
from holdfast.adapters.launch.server import MAX_CONNECTIONS, LauncherServer
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.launch.checkpoint_watch import is_watch_enabled, start_watch
from holdfast.apps.launch.coordinator import Coordinator, EvidenceOptions
from holdfast.apps.launch.guard import FORWARDED, Lease
from holdfast.apps.launch.node_ranks import NodeRanks
from holdfast.apps.launch.node_watch import NodeWatch
from holdfast.apps.launch.options import LaunchOptions
from holdfast.apps.launch.rank_output import RankOutput
from holdfast.apps.launch.rank_sampling import StragglerOptions
from holdfast.apps.launch.ranks import describe_unkillable
from holdfast.apps.launch.rendezvous import Rendezvous
from holdfast.apps.launch.stderr_relay import StderrRelay
from holdfast.decisions.launch_events import (
    Joined,
    Lost,
    Member,
    NodeReported,
    Reported,
    StopRequested,
)
from holdfast.decisions.launch_orders import Order, OrderKind, order_without_coordinator
from holdfast.decisions.launch_state import Outcome, RoundSettings
from holdfast.kit.free_ports import free_port
from holdfast.kit.open_files import raise_limit
from holdfast.kit.signals import heeded
from holdfast.model.errors import ConfigError
from holdfast.model.jobs import CHECKPOINTS_VARIABLE, JOB_VARIABLE, LAUNCH_KEY_VARIABLE

_RELAYED: Final = (signal.SIGUSR1, signal.SIGUSR2)
"""Signals that ranks get while the job continues, for example to save a checkpoint."""

_GUARD_S: Final = 0.5
"""Time from the end of the lease until the guard acts, for the launcher to do so itself. Together
with the kill it is less than ``RoundSettings.fence``."""

_UNKILLABLE_S: Final = 40.0
"""More than the time after which the launcher gives up on processes that do not end."""

_OWN_FILES: Final = 128
"""Open files of a launcher besides the connections of others: of its ranks and their logs."""

_LINGER_S: Final = 5.0
"""Time for launchers to read the last order before the coordinator exits."""


class Launcher:
    """Launcher of one node, and coordinator of its job if it is at the rendezvous endpoint."""

    def __init__(
        self,
        options: LaunchOptions,
        environment: Mapping[str, str],
        lease: Lease,
        relay: StderrRelay,
        cgroup: Cgroup | None,
    ) -> None:
        self._options = options
        self._lease = lease
        self._reports: deque[Reported] = deque()
        self._order: Order | None = None
        self._is_joined, self._is_awaiting_endpoint, self._leaving = False, False, 0
        self._ready: frozenset[int] = frozenset()
        self._leave_at: float | None = None
        member = Member(
            name=f"{socket.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}",
            address=options.address,
            port=options.master_port or free_port(),
            slots=options.slots,
            order=options.node_rank,
        )
        inherited = {
            name: value for name, value in environment.items() if name != LAUNCH_KEY_VARIABLE
        }
        launcher = member.name if options.rendezvous is not None else ""
        output = RankOutput(options.logs, options.run_id, options.role, relay, launcher)
        self._node = NodeRanks(member, options, inherited, self._reports.append, output, cgroup)
        self._health = NodeWatch(options.node_report)
        self._coordinator: Coordinator | None = None
        self._job = environment.get(JOB_VARIABLE) or options.run_id
        self._checkpoints = environment.get(CHECKPOINTS_VARIABLE, "")
        self._is_watching = bool(self._checkpoints) and is_watch_enabled(environment)
        self._watch: subprocess.Popen[bytes] | None = None
        self._server: LauncherServer | None = None
        self._link: CoordinatorLink | None = None
        if options.rendezvous is None:
            self._coordinator = self._coordinating(
                RoundSettings(
                    budget=options.budget,
                    stops_on_permanent_cause=options.stops_on_permanent_cause,
                    exchanges_suspects=options.exchanges_suspects,
                    verifies_checkpoints=bool(self._checkpoints),
                    can_join=False,
                )
            )
        else:
            self._meet(options.rendezvous)

    def _meet(self, rendezvous: Rendezvous) -> None:
        self._listen(rendezvous)
        endpoint, lease_s = (rendezvous.host, rendezvous.port), rendezvous.lease.total_seconds()
        self._link = CoordinatorLink(endpoint, rendezvous.key, lease_s, self._renew, rendezvous.run)

    def _listen(self, rendezvous: Rendezvous) -> None:
        """Coordinate the run if the endpoint is on this machine and free."""
        if (listener := rendezvous.listen()) is not None:
            settings = RoundSettings(
                nodes=rendezvous.nodes,
                join_timeout=rendezvous.join_timeout,
                lease=rendezvous.lease,
                may_succeed_another=rendezvous.may_succeed_another,
                budget=self._options.budget,
                stops_on_permanent_cause=self._options.stops_on_permanent_cause,
                exchanges_suspects=self._options.exchanges_suspects,
                verifies_checkpoints=bool(self._checkpoints),
            )
            coordinator = self._coordinator = self._coordinating(settings)
            self._server = LauncherServer(
                listener,
                rendezvous.key,
                rendezvous.lease.total_seconds(),
                coordinator.handle,
                rendezvous.run,
                _most_connections(rendezvous.nodes),
            )

    def _coordinating(self, settings: RoundSettings) -> Coordinator:
        evidence = EvidenceOptions(
            job=self._job, node=self._node.member.name, file=self._node.files.evidence
        )
        factor = _straggler_factor(self._options)
        rules = self._options.log_rules
        return Coordinator(settings, evidence, factor, self._checkpoints, rules)

    def run(self) -> int:
        """Run the job. Returns the exit code."""
        wake, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self._watch_checkpoints()
        numbers = {*heeded(FORWARDED), signal.SIGTERM}  # SIGTERM: the end of the guard, too
        for signum in (*FORWARDED, signal.SIGCHLD):  # ranks get the default action
            signal.signal(signum, lambda *_: None)
        self._check_node()
        is_child_left = False
        try:
            while not self._is_over():
                readers = [wake, *self._node.descriptors()]
                writers: list[int] = []
                for one in (self._server, self._link):
                    if one is not None:
                        readers += one.readers()
                        writers += one.writers()
                self._ready = _ready(readers, writers, self._pause())
                signals = _received(wake)
                self._handle_signals(signals & numbers)
                self._check_node()  # what it finds is sent before the end of the ranks
                own = self._coordinator.pids if self._coordinator is not None else ()
                self._node.advance(own)
                is_child_left = is_child_left or signal.SIGCHLD in signals
                if is_child_left:  # after its ranks: only other children are left
                    is_child_left = not self._node.reap_adopted(own)
        finally:
            self._lease.renew(math.inf)
            if self._watch is not None:
                self._watch.kill()
            if self._coordinator is not None:
                self._coordinator.close()
            self._node.close(keeps_evidence=not self._has_succeeded())
            for other in (self._link, self._server):
                if other is not None:
                    other.close()
        return self._exit_code()

    def _watch_checkpoints(self) -> None:
        has_ended = self._watch is None or self._watch.poll() is not None
        if self._is_watching and self._coordinator is not None and has_ended:
            self._watch = start_watch(self._checkpoints, None)
            self._node.spared.add(self._watch.pid)

    def _check_node(self) -> None:
        if not self._health.has_changed():
            return
        fault, member = self._health.fault, self._node.member
        self._node.member = replace(member, fault=fault)
        self._reports.append(NodeReported(launcher=member.name, fault=fault))

    def _is_over(self) -> bool:
        """Exchange events and orders; return whether nothing is left to do."""
        if self._link is not None:
            self._exchange(self._link)
        elif self._coordinator is not None:
            self._coordinate(self._coordinator)
        if self._node.unkillable:
            return True
        if not self._node.is_idle():
            return False
        if not self._node.is_starting:
            self._lease.renew(math.inf)
        has_ended = self._order is not None and self._order.kind is OrderKind.END
        return self._leaving > 0 or (has_ended and self._has_lingered())

    def _coordinate(self, coordinator: Coordinator) -> None:
        name = self._node.member.name
        if not self._is_joined:
            self._is_joined = True
            coordinator.handle(Joined(member=self._node.member))
        coordinator.handle(Lost(launcher=name) if self._node.unkillable else None)
        self._apply_order(coordinator.order_for(name))
        while self._reports:
            coordinator.handle(self._reports.popleft())
            self._apply_order(coordinator.order_for(name))

    def _exchange(self, link: CoordinatorLink) -> None:
        for order in link.advance(may_resolve=self._node.is_idle()):
            self._apply_order(order)
        if not link.is_connected():
            self._without_coordinator(link)
        elif not self._is_joined and self._node.is_idle() and not self._leaving:
            self._is_joined = True
            self._reports.clear()
            self._watch_checkpoints()  # without a lease, the guard has ended it
            link.send(self._joined(link.local_address()))
        is_last = self._leaving and self._server is not None  # a next round would end with it
        while self._is_joined and self._reports and not is_last:
            link.send(self._reports.popleft())
        if self._server is not None and self._coordinator is not None:
            self._server.advance(self._ready)
            self._coordinator.handle(None)
            self._server.send_orders(self._coordinator.orders_for, self._coordinator.basis)

    def _without_coordinator(self, link: CoordinatorLink) -> None:
        if self._order is not None and self._order.kind is OrderKind.END:
            return
        is_idle = self._node.is_idle()
        self._node.stop(signal.SIGKILL)  # also a round that has not started yet
        # Nothing runs, or SIGKILL is on its way: the guard need not act.
        self._lease.renew(math.inf if is_idle else time.monotonic() + _UNKILLABLE_S)
        if self._is_joined:
            self._is_joined = False
            sys.stderr.write(f"holdfast: connection to the coordinator lost: {link.problem}\n")
        rendezvous = self._options.rendezvous
        if rendezvous is not None and link.is_taken and is_idle and self._server is None:
            self._await_endpoint(rendezvous, link.problem)
        limit_s = rendezvous.join_timeout.total_seconds() if rendezvous is not None else 0.0
        if not self._leaving and time.monotonic() - link.lost_since > limit_s:
            sys.stderr.write(f"holdfast: no coordinator: {link.problem or 'timed out'}\n")
            self._order = order_without_coordinator(self._node.round, self._options.budget)

    def _await_endpoint(self, rendezvous: Rendezvous, problem: str) -> None:
        """Coordinate the run as soon as another one has left the endpoint."""
        if not self._is_awaiting_endpoint:
            self._is_awaiting_endpoint = True
            sys.stderr.write(f"holdfast: waiting for the endpoint: {problem}\n")
        self._listen(rendezvous)
        self._watch_checkpoints()

    def _joined(self, address: str) -> Joined:
        member, rendezvous = self._node.member, self._options.rendezvous
        if not member.address and rendezvous is not None:
            address = rendezvous.address_for_others(address)
            member = replace(member, address=address)
        if self._order is None:
            return Joined(member=member)
        last = max(self._node.round, self._order.round)
        return Joined(member=member, round=last, history=self._order.history)

    def _apply_order(self, order: Order) -> None:
        if self._leaving or (self._order is not None and self._order.kind is OrderKind.END):
            return
        self._order = order
        if order.kind is OrderKind.RUN and self._link is not None:
            self._renew(self._link.lease_until)
        self._node.apply_order(order)

    def _renew(self, until: float) -> None:
        if not self._node.is_idle() or (self._order and self._order.kind is OrderKind.RUN):
            self._lease.renew(until + _GUARD_S)

    def _has_lingered(self) -> bool:
        """Return whether all launchers of other nodes have read the last order.

        One that was lost shortly before may be running on a busy node. Without that order, it would
        wait for a coordinator until its join timeout, and then fail.
        """
        if self._link is not None:
            self._link.close()
        if self._server is None:
            return True
        now = time.monotonic()
        is_awaited = self._coordinator is not None and self._coordinator.awaits_launchers()
        if is_awaited or self._leave_at is None:
            self._leave_at = now + _LINGER_S
        return now >= self._leave_at or not (is_awaited or self._server.has_launchers())

    def _pause(self) -> float | None:
        calls = [self._node.next_call(), self._health.next_call(), self._leave_at]
        calls += [one.next_call() for one in (self._coordinator, self._server, self._link) if one]
        times = [one for one in calls if one is not None]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _handle_signals(self, numbers: frozenset[int]) -> None:
        for signum in sorted(numbers):
            if signum in _RELAYED:
                self._node.relay(signum)
            elif self._coordinator is not None and not self._may_leave(signum):
                self._coordinator.handle(StopRequested(signal=signum))
            elif not self._leaving:
                self._leave(signum)

    def _may_leave(self, signum: int) -> bool:
        """Return whether a signal ends only the launcher, although it has the coordinator."""
        rendezvous = self._options.rendezvous
        return signum == signal.SIGTERM and rendezvous is not None and rendezvous.leaves_on_sigterm

    def _leave(self, signum: int) -> None:
        self._leaving = signum
        self._node.stop(signum)
        if self._server is not None:
            sys.stderr.write(
                f"holdfast: CoordinatorLeft: signal {signum}; the other launchers wait for the "
                "next launcher at the endpoint\n"
            )

    def _has_succeeded(self) -> bool:
        return self._order is not None and self._order.outcome is Outcome.SUCCEEDED

    def _exit_code(self) -> int:
        if self._node.unkillable:
            sys.stderr.write(describe_unkillable(self._node.unkillable))
            return ExitCode.FAILED
        if self._leaving:
            return 128 + self._leaving
        match self._order.outcome if self._order is not None else None:
            case Outcome.SUCCEEDED:
                return ExitCode.OK
            case Outcome.INTERRUPTED:
                return 128 + (self._order.signal if self._order is not None else 0)
            case Outcome.RESTART_JOB:
                return ExitCode.RESTART_JOB
        return (self._order.code if self._order is not None else 0) or ExitCode.FAILED


def _straggler_factor(options: LaunchOptions) -> float:
    return StragglerOptions().factor if options.stragglers is None else options.stragglers.factor


def _most_connections(nodes: int) -> int:
    """Return the number of launchers that may connect.

    Raises:
        ConfigError: fewer than the nodes of the job.

    """
    limit = raise_limit(MAX_CONNECTIONS + _OWN_FILES)
    if limit - _OWN_FILES < nodes:
        needed = nodes + _OWN_FILES
        raise ConfigError(
            f"--nnodes: {nodes} nodes need {needed} open files, the limit is {limit}: raise it on "
            f"the node of the coordinator, for example with: ulimit -Hn {needed}"
        )
    return limit - _OWN_FILES


def _received(wake: int) -> frozenset[int]:
    """Return the signals that have arrived."""
    try:
        return frozenset(os.read(wake, 4096))
    except BlockingIOError:
        return frozenset()


def _ready(readers: list[int], writers: list[int], pause_s: float | None) -> frozenset[int]:
    """Wait until a descriptor is readable or writable; return those that are.

    ``select`` is limited to descriptors below 1024; ``poll`` is not.
    """
    poll = select.poll()
    masks = dict.fromkeys(readers, select.POLLIN)
    for descriptor in writers:
        masks[descriptor] = masks.get(descriptor, 0) | select.POLLOUT
    for descriptor, events in masks.items():
        poll.register(descriptor, events)
    return frozenset(key for key, _ in poll.poll(None if pause_s is None else pause_s * 1000))
