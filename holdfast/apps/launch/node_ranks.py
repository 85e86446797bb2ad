"""Executes the orders for one node: starts the ranks of a round, and ends all their processes."""

import math
import signal
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final

from holdfast.adapters.launch.cgroups import Cgroup
from holdfast.apps.launch.accelerator_wait import AcceleratorWait
from holdfast.apps.launch.file_thread import FileThread
from holdfast.apps.launch.log_rule_watch import LogRuleWatch
from holdfast.apps.launch.options import LaunchOptions
from holdfast.apps.launch.rank_environment import count_gpus, with_defaults
from holdfast.apps.launch.rank_failures import RankFailures
from holdfast.apps.launch.rank_inspection import RankInspections
from holdfast.apps.launch.rank_output import RankOutput
from holdfast.apps.launch.rank_watches import RankWatches
from holdfast.apps.launch.ranks import Rank, RankProcesses
from holdfast.apps.launch.round_files import RoundFiles
from holdfast.apps.launch.warm_ranks import WarmRanks
from holdfast.decisions.launch_events import (
    Member,
    Reported,
    Stopped,
    Succeeded,
)
from holdfast.decisions.launch_orders import Order, OrderKind
from holdfast.kit.free_ports import free_port
from holdfast.kit.processes import reap

_UNKILLABLE_S: Final = 30.0
"""Time after SIGKILL for processes to end. One in uninterruptible sleep does not."""

_STORAGE_S: Final = 120.0
"""Time for storage to respond that holds up a restart: NFS servers fail over in less."""

_SWEEP_S: Final = 0.005
_COPY_S: Final = 0.1


class NodeRanks:
    """Ranks of one node. ``member`` identifies its launcher."""

    def __init__(
        self,
        member: Member,
        options: LaunchOptions,
        environment: Mapping[str, str],
        report: Callable[[Reported], None],
        output: RankOutput,
        cgroup: Cgroup | None = None,
    ) -> None:
        self.member = member
        self.unkillable: list[int] = []
        """Processes that did not end after SIGKILL, or a thread of this one that waits for storage;
        the node cannot be used any more."""

        self.spared: set[int] = set()
        """Processes below this one that are no ranks, and outlive them."""

        self.round = 0
        self._options = options
        self._environment = environment
        self._report = report
        self._cgroup = cgroup
        self._output = output
        self._thread = FileThread()
        self.files = RoundFiles(options, environment, output)
        self._ranks = RankProcesses()
        self._first_rank = 0
        self._next: Order | None = None
        """Order to start a round whose files are being created; None if there is none."""

        self._examined: Order | None = None
        """Order that may name a straggler to examine; None if it was executed."""

        self._ended: list[Rank] = []
        """Ranks whose ends have not been reported yet."""

        self._others: Collection[int] = ()
        self._look_at, self._respond_by = math.inf, math.inf
        self._is_watched = self._is_stopping = False
        self._is_swept = True
        self._kill_at: float | None = None
        self._give_up_at: float | None = None
        self._wait: AcceleratorWait | None = None
        self._watches = RankWatches(member.name, options, environment, report)
        self._rules = LogRuleWatch(options.log_rules, has_others=options.rendezvous is not None)
        self._inspections = RankInspections(member.name, options.slots)
        read = (self.files, self._watches, self._inspections)
        self._failures = RankFailures(member.name, options, *read)
        self._warm = WarmRanks(options.warm) if options.warm is not None else None

    def apply_order(self, order: Order) -> None:
        """Execute an order; a repeated one has no effect."""
        if order.kind is OrderKind.WAIT:
            self._next = None
            self._prepare()
        elif order.kind is OrderKind.RUN:
            # No second round while a process of an earlier one is alive: a fence of its own.
            if order.round > self.round and self.is_idle():
                self._begin(order)
            elif order.round == self.round and order.inspection > self._inspections.number:
                limit_s = order.inspection_limit.total_seconds()
                self._inspections.begin(order.inspection, self._processes(), limit_s)
            self._examined = order
        else:
            if order.kind is OrderKind.STOP and order.round > self.round and self.is_idle():
                self.round = order.round  # it ended before the order to start it was sent
                self._report_stopped()
            self.stop(order.signal or self._options.shutdown_signal)

    @property
    def is_starting(self) -> bool:
        """Return whether a round starts once its files are created."""
        return self._next is not None

    def is_idle(self) -> bool:
        """Return whether no process of a round is left."""
        return self._is_swept and self._wait is None

    def stop(self, signum: int) -> None:
        """Begin to end all ranks; ``Stopped`` is reported when no process is left."""
        self._next = None
        if self.is_idle() or (self._is_stopping and signum != signal.SIGKILL):
            return
        self._end_watching()
        self._is_stopping = True
        self._inspections.end()
        self._rules.end()
        self._ranks.signal(signum)
        self._ranks.signal(signal.SIGCONT)  # a stopped process handles no other signal
        now = time.monotonic()
        if signum == signal.SIGKILL:
            self._kill_at, self._give_up_at = None, self._give_up_at or now + _UNKILLABLE_S
        else:
            self._kill_at = now + self._options.grace.total_seconds()

    def relay(self, signum: int) -> None:
        """Send a signal to the process groups of all ranks."""
        self._ranks.signal(signum)

    def descriptors(self) -> list[int]:
        """Return pidfds that become readable when ``advance`` has something to do."""
        return [rank.descriptor for rank in self._ranks.ranks if rank.code is None]

    def next_call(self) -> float | None:
        """Return the monotonic time of the next call of ``advance``; None: on an event only."""
        now = time.monotonic()
        if self._thread.is_busy:
            return now + _COPY_S
        if self._ended or self._next is not None:
            return now
        times = [self._look_at, *filter(None, (self._kill_at, self._rules.next_call()))]
        if self._is_stopping and not (self._is_swept or self._awaits_ranks()):
            times.append(now + (_COPY_S if self._ranks.are_running() else _SWEEP_S))
        if self._wait or self._inspections.is_running or self._output.is_following():
            times.append(now + _COPY_S)
        return at if math.isfinite(at := min(times)) else None

    def advance(self, others: Collection[int] = ()) -> None:
        """Report what ended, and continue the stop; ``others`` has further own processes."""
        self._others = others
        self._ended += self._ranks.reap(is_stopping=self._is_stopping)
        if not self._thread.finish():
            self._advance_without_files()
            return
        self._respond_by = math.inf
        if self._next is not None:
            self._begin(self._next)
        elif self._is_stopping:
            self._end_watching()
        elif self._examined is not None:
            self._watches.examine(self._examined)
            self._examined = None
            self._look_at = time.monotonic()
        if self._thread.is_busy:
            return
        is_due = bool(self._ended) or time.monotonic() >= self._look_at
        if is_due or self._inspections.is_running or self._output.is_following():
            ended, self._ended = self._ended, []
            self._thread.run(partial(self._look, ended), then=self._after_look)
        else:
            self._after_look()

    def _look(self, ended: list[Rank]) -> None:
        """Read the files of the ranks, and report what they show; runs in the thread."""
        if self._inspections.is_running:
            self._watches.read_steps()
        self._watches.forget([rank.local_rank for rank in ended if not rank.is_stopped])
        for rank in ended:
            if failed := self._failures.event(rank, self._first_rank, self.round):
                self._report(failed)
        self._output.copy()
        self._watches.look()

    def _after_look(self) -> None:
        self._look_at = min(self._watches.next_calls(), default=math.inf)
        if self._ended:
            return  # after the next look: what they have written is lost with the round
        if found := self._rules.report(self.member.name, self.round):
            self._report(found)
        self._report_inspected()
        is_awaited = self._inspections.is_running and not self._is_stopping
        if not (self._is_swept or self._awaits_ranks() or is_awaited):
            self._end_watching(then=self._end_round)
        elif self._kill_at is not None and time.monotonic() >= self._kill_at:
            self.stop(signal.SIGKILL)
        self._after_wait()

    def _end_watching(self, then: Callable[[], None] = lambda: None) -> None:
        """Read the files of the ranks for the last time, once the thread is free."""
        if not self._is_watched:
            then()
        elif not self._thread.is_busy:
            self._thread.run(self._look_last, then=then)

    def _look_last(self) -> None:
        self._watches.check_losses(is_last=True)
        self._watches.end()
        self._is_watched = False

    def _end_round(self) -> None:
        if any(rank.code for rank in self._ranks.ranks):
            self._rules.end()
        elif not self._is_stopping:
            self._rules.finish()
        self._is_stopping = True
        self._inspections.end()
        self._sweep()

    def _advance_without_files(self) -> None:
        """Continue a stop and an inspection while the storage of the files does not respond."""
        now = time.monotonic()
        if self._kill_at is not None and now >= self._kill_at:
            self.stop(signal.SIGKILL)
        if self._is_stopping and not (self._is_swept or self._awaits_ranks()):
            self._ranks.kill_left(self._beside_ranks())
        if not self._ended:
            self._report_inspected()
        has_failed = any(rank.code for rank in self._ranks.ranks)
        is_over = self._is_stopping or not self._ranks.are_running()
        if has_failed or is_over or self._next is not None:
            self._respond_by = min(self._respond_by, now + _STORAGE_S)
            self.unkillable = [self._thread.native_id] if now >= self._respond_by else []

    def _report_inspected(self) -> None:
        if inspected := self._inspections.found(is_stalled=self._watches.is_stalled):
            self._report(inspected)

    def close(self, *, keeps_evidence: bool) -> None:
        """Release the files. No rank may be left.

        Args:
            keeps_evidence: whether evidence of hangs stays in a temporary directory.

        """
        if self._wait is not None:
            self._wait.close()
        self._inspections.end()
        self._rules.close()
        if self._warm is not None:
            self._warm.close()
        if self._thread.wait(_COPY_S):
            self._watches.end()
            self._output.close(keeps_evidence=keeps_evidence)
        if self._cgroup is not None:
            self._cgroup.remove()

    def _begin(self, order: Order) -> None:
        """Start a round, as soon as its files are created."""
        self._next = order
        if not self._thread.is_busy:
            self._thread.run(
                partial(self._create, order), then=partial(self._after_creation, order)
            )

    def _create(self, order: Order) -> None:
        """Create the files of a round, and watch them; runs in the thread."""
        self.files.create(order)
        logs = self.files.logs
        self._watches.begin(order, self.files.progress(), logs, self._processes)
        self._rules.begin({order.first_rank + rank: paths for rank, paths in logs.items()})

    def _after_creation(self, created: Order) -> None:
        order, self._next = self._next, None
        if order is not None and order.round == created.round:
            self._start(order)
            self.apply_order(order)  # it may request an inspection
            self._prepare()
        else:
            self._next = order
            self._thread.run(self._discard)

    def _discard(self) -> None:
        """Close the files of a round that has not started; runs in the thread."""
        self._watches.end()
        self._rules.end()
        self.files.discard()

    def _start(self, order: Order) -> None:
        self.round = order.round
        self._first_rank = order.first_rank
        cgroup = self._cgroup and self._cgroup.below(f"round-{order.round}")
        self._ranks = RankProcesses(cgroup)
        self._is_stopping = self._is_swept = False
        self._is_watched = True
        self._kill_at = self._give_up_at = None
        self._inspections.begin_round(order.round, self.files.dumps)
        steps = self.files.progress()
        for local_rank in range(self._options.slots):
            reports = steps[local_rank] if self._watches.reads_steps else ""
            environment = self.files.environment_of(order, local_rank, reports)
            streams = self.files.take_streams(local_rank)
            command, warm = self._options.command, None
            if self._warm is not None:
                warm = self._warm.take(local_rank, command, environment, streams, cgroup)
            rank = self._ranks.start(local_rank, command, environment, streams, warm)
            self._ended += [rank] if rank.code is not None else []
        self._watches.begin_samples(order, self._processes(), self.files.sections)
        self._look_at = min(self._watches.next_calls(), default=math.inf)

    def _processes(self) -> dict[int, int | None]:
        """Return the process that was started for each rank; None for one that has ended."""
        return {self._first_rank + rank.local_rank: rank.pid for rank in self._ranks.ranks}

    def _prepare(self) -> None:
        """Start the warm ranks of the next round."""
        if self._warm is not None:
            environment = with_defaults(self._environment, self._options.slots)
            for local_rank in range(self._options.slots):
                self._warm.prepare(local_rank, environment)

    def _awaits_ranks(self) -> bool:
        """Return whether a rank runs that has not been sent SIGKILL."""
        return self._ranks.are_running() and self._give_up_at is None

    def _sweep(self) -> None:
        """End processes that the ranks left running, in any session, and ranks after SIGKILL."""
        left, self._kill_at = self._ranks.kill_left(self._beside_ranks()), None
        if left or self._ranks.are_running():
            self._give_up_at = self._give_up_at or time.monotonic() + _UNKILLABLE_S
            self.unkillable = left if time.monotonic() >= self._give_up_at else []
        else:
            self.unkillable = []
            self._thread.run(partial(self._output.copy, is_over=True), then=self._end_sweep)

    def _end_sweep(self) -> None:
        self._is_swept = True
        if all(rank.code == 0 for rank in self._ranks.ranks):
            self._report(Succeeded(launcher=self.member.name, round=self.round))
            self._report_stopped()
        elif count_gpus():
            devices = self._environment.get("CUDA_VISIBLE_DEVICES", "")
            self._wait = AcceleratorWait(devices, self._options.accelerator_timeout)
        else:
            self._report_stopped()

    def _after_wait(self) -> None:
        if self._wait is None or (seconds := self._wait.seconds()) is None:
            return
        if self._wait.is_running():  # its driver hangs
            self.unkillable = [self._wait.pid]
        else:
            self._wait = None
            self._report_stopped(seconds)

    def _report_stopped(self, waited_s: float = 0.0) -> None:
        name, port = self.member.name, free_port()
        self._report(Stopped(launcher=name, round=self.round, port=port, waited_s=waited_s))

    def _beside_ranks(self) -> set[int]:
        """Return the processes of this launcher that are neither ranks nor started by ranks."""
        watches = (self._inspections, self._watches, self._rules)
        pids = {*self.spared, *self._others, *(pid for one in watches for pid in one.pids)}
        return pids | (self._warm.pids() if self._warm is not None else set())

    def reap_adopted(self, others: Collection[int]) -> bool:
        """Reap processes whose own parent has ended, if this thread alone starts processes now.

        Args:
            others: further own processes, which are not reaped.

        Returns:
            Whether all were reaped.

        """
        if self._thread.is_busy:
            return False
        ranks = [rank.process.pid for rank in self._ranks.ranks if rank.process is not None]
        wait = [self._wait.pid] if self._wait is not None else []
        reap([*others, *ranks, *wait, *self._beside_ranks()])
        return True
