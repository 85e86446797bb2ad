"""Executes the orders for one node: starts the ranks of a round, and ends all their processes."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from holdfast.adapters.launch.cgroups import Cgroup
from holdfast.apps.launch.accelerator_wait import AcceleratorWait
from holdfast.apps.launch.failure_text import crash_of, described, rerun_of
from holdfast.apps.launch.log_rule_watch import LogRuleWatch
from holdfast.apps.launch.loss_watch import LossWatch
from holdfast.apps.launch.options import LaunchOptions
from holdfast.apps.launch.progress_watch import ProgressWatch, other_signs
from holdfast.apps.launch.rank_environment import (
    JobNames,
    RankFiles,
    count_gpus,
    launcher_environment,
    rank_environment,
    with_defaults,
)
from holdfast.apps.launch.rank_inspection import RankInspections
from holdfast.apps.launch.rank_output import RankOutput
from holdfast.apps.launch.rank_sampling import RankSampling
from holdfast.apps.launch.ranks import Rank, RankProcesses
from holdfast.apps.launch.warm_ranks import WarmRanks
from holdfast.decisions.exit_meanings import ExitMeaning
from holdfast.decisions.failure_signatures import cause_of, is_peer_failure
from holdfast.decisions.flight_recorder import DUMP_PREFIX, dump_files
from holdfast.decisions.launch_events import (
    Failed,
    LossReported,
    Member,
    Reported,
    Stopped,
    Succeeded,
)
from holdfast.decisions.launch_orders import Order, OrderKind
from holdfast.kit.free_ports import free_port
from holdfast.kit.processes import reap
from holdfast.model.jobs import EVIDENCE_VARIABLE, PROGRESS_VARIABLE, SECTIONS_VARIABLE

_UNKILLABLE_S: Final = 30.0
"""Time after SIGKILL for processes to end. One in uninterruptible sleep does not."""

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
        """Processes that did not end after SIGKILL; the node cannot be used any more."""

        self.spared: set[int] = set()
        """Processes below this one that are no ranks, and outlive them."""

        self.round = 0
        self._options = options
        self._environment = environment
        self._report = report
        self._cgroup = cgroup
        self._output = output
        self._ranks = RankProcesses()
        self._attempt = self._first_rank = 0
        self._is_stopping = False
        self._is_swept = True
        self._kill_at: float | None = None
        self._give_up_at: float | None = None
        self._wait: AcceleratorWait | None = None
        is_watched = PROGRESS_VARIABLE in environment and not options.hang_limit.restarts
        has_steps = not is_watched and not options.starts_ranks
        self._progress = ProgressWatch(options.hang_limit) if has_steps else None
        self._losses = LossWatch(options.losses) if options.losses is not None else None
        self._rules = LogRuleWatch(options.log_rules, has_others=options.rendezvous is not None)
        self._has_progress = False
        self._suspected: int | None = None
        self._inspections = RankInspections(member.name, options.slots)
        stragglers = options.stragglers
        self._sampling = RankSampling(member.name, stragglers) if stragglers is not None else None
        self._warm = WarmRanks(options.warm) if options.warm is not None else None

    def apply_order(self, order: Order) -> None:
        """Execute an order; a repeated one has no effect."""
        if order.kind is OrderKind.WAIT:
            self._prepare()
        elif order.kind is OrderKind.RUN:
            # No second round while a process of an earlier one is alive: a fence of its own.
            if order.round > self.round and self.is_idle():
                self._start(order)
                self._prepare()
            elif order.round == self.round and order.inspection > self._inspections.number:
                limit_s = order.inspection_limit.total_seconds()
                self._inspections.begin(order.inspection, self._processes(), limit_s)
            if self._sampling is not None:
                self._sampling.examine(order.round, order.slow_rank)
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
        self._check_losses(is_last=True)
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
        times = [self._kill_at] if self._kill_at is not None else []
        if self._is_stopping and not (self._is_swept or self._awaits_ranks()):
            times.append(now + (_COPY_S if self._ranks.are_running() else _SWEEP_S))
        if self._wait or self._inspections.is_running or self._output.is_following():
            times.append(now + _COPY_S)
        if self._progress is not None and not self._is_stopping and not self._is_swept:
            times += [at for at in [self._progress.next_call()] if at is not None]
        for one in (self._sampling, self._losses, self._rules):
            times += [at for at in [one.next_call() if one is not None else None] if at is not None]
        return min(times, default=None)

    def advance(self, others: Collection[int] = ()) -> None:
        """Report what ended, and continue the stop; ``others`` has further own processes."""
        ended = self._ranks.reap()
        if ended and self._progress is not None:
            self._has_progress = self._progress.has_begun()
        for rank in ended:
            if self._progress is not None:
                self._progress.forget(rank.local_rank)
            if rank.code:
                self._report_failure(rank)
        self._output.copy()
        self._check_losses()
        if found := self._rules.report(self.member.name, self.round):
            self._report(found)
        self._check_progress()
        if inspected := self._inspections.found(is_stalled=self._is_stalled):
            self._report(inspected)
        for event in self._sampling.advance() if self._sampling is not None else ():
            self._report(event)
        is_awaited = self._inspections.is_running and not self._is_stopping
        if not (self._is_swept or self._awaits_ranks() or is_awaited):
            self._check_losses(is_last=True)
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

    def evidence_file(self) -> Path:
        """Return the file for the evidence of a hang in the current round."""
        given = self._environment.get(EVIDENCE_VARIABLE)
        return Path(given) if given else self._output.evidence(self._attempt)

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
        self._output.close(keeps_evidence=keeps_evidence)
        if self._cgroup is not None:
            self._cgroup.remove()

    def _start(self, order: Order) -> None:
        self.round = order.round
        self._attempt, self._first_rank = order.history.total, order.first_rank
        cgroup = self._cgroup and self._cgroup.below(f"round-{order.round}")
        self._ranks = RankProcesses(cgroup)
        self._is_stopping = self._is_swept = self._has_progress = False
        self._kill_at = self._give_up_at = self._suspected = None
        files = dump_files(self._environment, str(self._output.dumps(self._attempt)))
        self._inspections.begin_round(order.round, files)
        slots = range(self._options.slots)
        logs = {rank: self._output.logs(self._attempt, rank) for rank in slots}
        if self._losses is not None:
            self._losses.begin({rank: self._progress_file(rank) for rank in slots}, logs)
        if self._progress is not None:
            self._progress.begin(
                {rank: self._progress_file(rank) for rank in slots},
                logs,
                is_whole=order.world_size == self._options.slots,
                signs=other_signs(self._environment, order.first_rank, self._processes),
            )
        self._rules.begin({order.first_rank + rank: logs[rank] for rank in slots})
        for local_rank in slots:
            environment = self._environment_of(order, local_rank)
            streams = self._output.open_streams(self._attempt, local_rank)
            command = self._options.command
            warm = None
            if self._warm is not None:
                warm = self._warm.take(local_rank, command, environment, streams, cgroup)
            rank = self._ranks.start(local_rank, command, environment, streams, warm)
            if rank.code is not None:
                self._report_failure(rank)
        if self._sampling is not None and order.world_size > 1:
            pids = {rank: pid for rank, pid in self._processes().items() if pid is not None}
            self._sampling.begin(order.round, pids, self._sections())

    def _environment_of(self, order: Order, local_rank: int) -> dict[str, str]:
        """Return the environment of a rank, whose files of earlier attempts are removed."""
        options = self._options
        dumps = self._output.dumps(self._attempt)
        error = self._output.error_file(self._attempt, local_rank)
        files = RankFiles(error=str(error), dumps=str(dumps))
        for path in (files.error, dumps / f"{DUMP_PREFIX}{order.first_rank + local_rank}"):
            with contextlib.suppress(OSError):
                os.unlink(path)
        if options.starts_ranks:
            environment = launcher_environment(self._environment, order, files)
        else:
            names = JobNames(
                run_id=options.run_id, role=options.role, max_restarts=options.budget.in_place
            )
            environment = rank_environment(
                self._environment, order, local_rank, options.slots, names, files
            )
        if self._progress is not None or self._losses is not None:
            environment[PROGRESS_VARIABLE] = self._progress_file(local_rank)
        environment[SECTIONS_VARIABLE] = str(self._sections())
        return environment

    def _sections(self) -> Path:
        given = self._environment.get(SECTIONS_VARIABLE)
        return Path(given) if given else self._output.sections(self._attempt)

    def _processes(self) -> dict[int, int | None]:
        """Return the process that was started for each rank; None for one that has ended."""
        return {
            self._first_rank + rank.local_rank: rank.process.pid
            if rank.process is not None and rank.code is None
            else None
            for rank in self._ranks.ranks
        }

    def _progress_file(self, local_rank: int) -> str:
        own = self._output.folder(self._attempt, local_rank) / "progress"
        return self._environment.get(PROGRESS_VARIABLE) or str(own)

    def _check_progress(self) -> None:
        if self._is_stopping or self._is_swept:
            return
        if self._progress is not None and (stall := self._progress.stalled()) is not None:
            self._suspected = stall.local_rank
            self._report(stall.suspicion(self.member.name, self.round, self._first_rank))

    def _check_losses(self, *, is_last: bool = False) -> None:
        """Report a bad loss before what follows from it."""
        if self._losses is None or self._is_stopping or self._is_swept:
            return
        if (found := self._losses.found(is_last=is_last)) is None:
            return
        local_ranks, fault = found
        ranks, name = tuple(self._first_rank + rank for rank in local_ranks), self.member.name
        self._report(LossReported(launcher=name, round=self.round, ranks=ranks, fault=fault))

    def _is_stalled(self) -> bool:
        own, progress = self._suspected, self._progress
        return own is None or progress is None or progress.is_stalled(own)

    def _end_watching(self) -> None:
        self._inspections.end()
        for one in (self._progress, self._losses, self._sampling):
            if one is not None:
                one.end()

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
        self._check_losses(is_last=True)
        number = self._first_rank + rank.local_rank
        is_crash = meaning is ExitMeaning.CRASH
        stderr = self._output.end_of_stderr(self._attempt, rank.local_rank)
        crash = crash_of(self._output.error_file(self._attempt, rank.local_rank), stderr)
        read = crash if is_crash else rerun_of(self._options.command, number, crash)
        reason = rank.error or read
        has_timed_out = is_crash and self._inspections.has_timed_out(number, reason)
        if has_timed_out:
            self._suspected = None
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
                has_progress=self._has_progress,
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
        self._is_swept = True
        self._kill_at = None
        self._output.copy(is_over=True)
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
        own_pids = [*others]
        own_pids += [rank.process.pid for rank in self._ranks.ranks if rank.process is not None]
        own_pids += [self._wait.pid] if self._wait is not None else []
        for one in (self._inspections, self._sampling, self._progress, self._rules):
            own_pids += one.pids if one is not None else []
        reap([*own_pids, *(self._warm.pids() if self._warm is not None else ())])
