"""Executes the orders for one node: starts the ranks of a round, and ends all their processes."""

import math
import signal
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from holdfast.adapters.launch.cgroups import Cgroup
from holdfast.apps.launch.accelerator_wait import AcceleratorWait
from holdfast.apps.launch.failure_text import described
from holdfast.apps.launch.file_thread import FileThread
from holdfast.apps.launch.log_rule_watch import LogRuleWatch
from holdfast.apps.launch.options import LaunchOptions
from holdfast.apps.launch.rank_environment import count_gpus, with_defaults
from holdfast.apps.launch.rank_inspection import RankInspections
from holdfast.apps.launch.rank_output import RankOutput
from holdfast.apps.launch.rank_watches import RankWatches
from holdfast.apps.launch.ranks import Rank, RankProcesses
from holdfast.apps.launch.round_files import RoundFiles
from holdfast.apps.launch.warm_ranks import WarmRanks
from holdfast.decisions.exit_meanings import ExitMeaning
from holdfast.decisions.failure_signatures import cause_of, is_peer_failure
from holdfast.decisions.launch_events import (
    Failed,
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

Report = Callable[[Reported], None]


class NodeRanks:
    """Ranks of one node. ``member`` identifies its launcher."""

    def __init__(
        self,
        member: Member,
        options: LaunchOptions,
        environment: Mapping[str, str],
        report: Report,
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
        self._files = RoundFiles(options, environment, output)
        self._ranks = RankProcesses()
        self._first_rank = 0
        self._next: Order | None = None
        """Order to start a round for which the storage of its files has not responded yet."""

        self._ended: list[Rank] = []
        """Ranks whose ends have not been reported yet."""

        self._respond_by: float | None = None
        self._is_stopping = False
        self._is_swept = True
        self._kill_at: float | None = None
        self._give_up_at: float | None = None
        self._wait: AcceleratorWait | None = None
        self._watches = RankWatches(member.name, options, environment, report)
        self._rules = LogRuleWatch(options.log_rules, has_others=options.rendezvous is not None)
        self._inspections = RankInspections(member.name, options.slots)
        self._warm = WarmRanks(options.warm) if options.warm is not None else None

    def apply_order(self, order: Order) -> None:
        """Execute an order; a repeated one has no effect."""
        self._next = None
        if order.kind is OrderKind.WAIT:
            self._prepare()
        elif order.kind is OrderKind.RUN:
            # No second round while a process of an earlier one is alive: a fence of its own.
            if order.round > self.round and self.is_idle():
                self._begin(order)
            elif order.round == self.round and order.inspection > self._inspections.number:
                limit_s = order.inspection_limit.total_seconds()
                self._inspections.begin(order.inspection, self._processes(), limit_s)
            if not self._thread.is_busy():
                self._watches.examine(order)
        else:
            if order.kind is OrderKind.STOP and order.round > self.round and self.is_idle():
                self.round = order.round  # it ended before the order to start it was sent
                self._report_stopped()
            self.stop(order.signal or self._options.shutdown_signal)

    def is_idle(self) -> bool:
        """Return whether no process of a round is left."""
        return self._is_swept and self._wait is None

    def stop(self, signum: int) -> None:
        """Begin to end all ranks; ``Stopped`` is reported when no process is left."""
        if self.is_idle() or (self._is_stopping and signum != signal.SIGKILL):
            return
        self._thread.run(partial(self._watches.check_losses, is_last=True))
        self._is_stopping = True
        self._end_watching()
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
        if self._thread.is_busy():
            return now + _COPY_S
        times = [self._kill_at] if self._kill_at is not None else []
        if self._is_stopping and not (self._is_swept or self._awaits_ranks()):
            times.append(now + (_COPY_S if self._ranks.are_running() else _SWEEP_S))
        if self._wait or self._inspections.is_running or self._output.is_following():
            times.append(now + _COPY_S)
        times += [at for at in [self._rules.next_call()] if at is not None]
        return min([*times, *self._watches.next_calls()], default=None)

    def advance(self, others: Collection[int] = ()) -> None:
        """Report what ended, and continue the stop; ``others`` has further own processes."""
        self._ended += self._ranks.reap()
        if self._thread.is_busy():
            self._advance_without_files()
            return
        self._respond_by = None
        if self._next is not None:
            self.apply_order(self._next)
            if self._thread.is_busy():
                return
        ended, self._ended = self._ended, []
        is_due = min(self._watches.next_calls(), default=math.inf) <= time.monotonic()
        is_due = is_due or bool(ended) or self._output.is_following()
        if is_due and not self._thread.run(partial(self._look, ended)):
            return
        if found := self._rules.report(self.member.name, self.round):
            self._report(found)
        if inspected := self._inspections.found(is_stalled=self._is_stalled):
            self._report(inspected)
        is_awaited = self._inspections.is_running and not self._is_stopping
        if not (self._is_swept or self._awaits_ranks() or is_awaited):
            if not self._thread.run(partial(self._watches.check_losses, is_last=True)):
                return
            if any(rank.code for rank in self._ranks.ranks):
                self._rules.end()
            elif not self._is_stopping:
                self._rules.finish()
            self._is_stopping = True
            self._end_watching()
            self._sweep(others)
        elif self._kill_at is not None and time.monotonic() >= self._kill_at:
            self.stop(signal.SIGKILL)
        self._after_wait()

    def _look(self, ended: list[Rank]) -> None:
        """Read the files of the ranks, and report what they show."""
        self._watches.forget([rank.local_rank for rank in ended])
        for rank in ended:
            if rank.code:
                self._report_failure(rank)
        self._output.copy()
        self._watches.look()

    def _advance_without_files(self) -> None:
        """Continue a stop and an inspection while the storage of the files does not respond."""
        now = time.monotonic()
        if self._kill_at is not None and now >= self._kill_at:
            self.stop(signal.SIGKILL)
        if inspected := self._inspections.found(is_stalled=self._is_stalled):
            self._report(inspected)
        has_failed = any(rank.code for rank in self._ranks.ranks)
        is_over = self._is_stopping or not self._ranks.are_running()
        if has_failed or is_over or self._next is not None:
            self._respond_by = self._respond_by or now + _STORAGE_S
            self.unkillable = [self._thread.native_id] if now >= self._respond_by else []

    def evidence_file(self) -> Path:
        """Return the file for the evidence of a hang in the current round."""
        return self._files.evidence()

    def close(self, *, keeps_evidence: bool) -> None:
        """Release the files. No rank may be left.

        Args:
            keeps_evidence: whether evidence of hangs stays in a temporary directory.

        """
        if self._wait is not None:
            self._wait.close()
        self._end_watching()
        self._rules.close()
        if self._warm is not None:
            self._warm.close()
        if not self._thread.is_busy():
            self._output.close(keeps_evidence=keeps_evidence)
        if self._cgroup is not None:
            self._cgroup.remove()

    def _begin(self, order: Order) -> None:
        """Start a round, as soon as the storage of its files responds."""
        if self._thread.run(partial(self._files.create, order.history.total)):
            self._start(order)
            self._prepare()
        else:
            self._next = order

    def _start(self, order: Order) -> None:
        self.round = order.round
        self._first_rank = order.first_rank
        cgroup = self._cgroup and self._cgroup.below(f"round-{order.round}")
        self._ranks = RankProcesses(cgroup)
        self._is_stopping = self._is_swept = False
        self._kill_at = self._give_up_at = None
        self._inspections.begin_round(order.round, self._files.dumps())
        slots = range(self._options.slots)
        logs, steps = self._files.logs(), self._files.progress()
        self._watches.begin(order, steps, logs, self._processes)
        self._rules.begin({order.first_rank + rank: logs[rank] for rank in slots})
        for local_rank in slots:
            reports = steps[local_rank] if self._watches.reads_steps else ""
            environment = self._files.environment_of(order, local_rank, reports)
            streams = self._files.take_streams(local_rank)
            command = self._options.command
            warm = None
            if self._warm is not None:
                warm = self._warm.take(local_rank, command, environment, streams, cgroup)
            rank = self._ranks.start(local_rank, command, environment, streams, warm)
            if rank.code is not None:
                self._report_failure(rank)
        self._watches.begin_samples(order, self._processes(), self._files.sections())

    def _processes(self) -> dict[int, int | None]:
        """Return the process that was started for each rank; None for one that has ended."""
        return {
            self._first_rank + rank.local_rank: rank.process.pid
            if rank.process is not None and rank.code is None
            else None
            for rank in self._ranks.ranks
        }

    def _is_stalled(self) -> bool:
        """Return whether the suspected rank is without progress; if unknown, it is."""
        found = [True]
        self._thread.run(lambda: found.append(self._watches.is_stalled()))
        return found[-1]

    def _end_watching(self) -> None:
        self._inspections.end()
        if self._thread.is_busy():
            self._watches.stop()  # the rest once storage responds
        else:
            self._watches.end()

    def _prepare(self) -> None:
        """Start the warm ranks of the next round."""
        if self._warm is not None:
            environment = with_defaults(self._environment, self._options.slots)
            for local_rank in range(self._options.slots):
                self._warm.prepare(local_rank, environment)

    def _report_failure(self, rank: Rank) -> None:
        if self._is_stopping or rank.code is None:
            return
        meaning = self._options.meanings.get(rank.code, ExitMeaning.CRASH)
        self._watches.check_losses(is_last=True)
        number = self._first_rank + rank.local_rank
        is_crash = meaning is ExitMeaning.CRASH
        stderr = self._files.end_of_stderr(rank.local_rank)
        reason = rank.error or self._files.exception(
            rank.local_rank, number, stderr, is_crash=is_crash
        )
        has_timed_out = is_crash and self._inspections.has_timed_out(number, reason)
        if has_timed_out:
            self._watches.forget_suspect()
        self._report(
            Failed(
                launcher=self.member.name,
                round=self.round,
                rank=number,
                code=rank.code,
                meaning=meaning,
                text=described(rank.code, reason, stderr),
                has_timed_out=has_timed_out,
                is_consequence=is_crash and is_peer_failure(reason),
                cause=(is_crash and cause_of(reason, rank.code)) or "",
                has_progress=self._watches.has_progress,
            )
        )

    def _awaits_ranks(self) -> bool:
        """Return whether a rank runs that has not been sent SIGKILL."""
        return self._ranks.are_running() and self._give_up_at is None

    def _sweep(self, others: Collection[int]) -> None:
        """End processes that the ranks left running, in any session, and ranks after SIGKILL."""
        spared = self.spared | self._inspections.pids | self._rules.pids | {*others}
        spared |= self._warm.pids() if self._warm is not None else set()
        if (left := self._ranks.kill_left(spared)) or self._ranks.are_running():
            self._give_up_at = self._give_up_at or time.monotonic() + _UNKILLABLE_S
            self.unkillable = left if time.monotonic() >= self._give_up_at else []
            return
        if not self._thread.run(partial(self._output.copy, is_over=True)):
            return
        self._is_swept = True
        self._kill_at = None
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

    def reap_adopted(self, others: Collection[int]) -> None:
        """Reap processes whose own parent has ended; ``others`` has further own ones."""
        if self._thread.is_busy():
            return  # it may just start a process
        own_pids = [*others]
        own_pids += [rank.process.pid for rank in self._ranks.ranks if rank.process is not None]
        own_pids += [self._wait.pid] if self._wait is not None else []
        for one in (self._inspections, self._watches, self._rules):
            own_pids += one.pids
        reap([*own_pids, *(self._warm.pids() if self._warm is not None else ())])
