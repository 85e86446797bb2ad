"""Job backend of the local platform: one rank process per node."""

from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final

from holdfast.adapters.host.job_log_rules import JobLogRules
from holdfast.adapters.host.kernel_warnings import DEVICE
from holdfast.adapters.host.pattern_matcher import PatternMatcher
from holdfast.adapters.host.progress_file import Progress
from holdfast.adapters.host.rank_stacks import NodeRanks
from holdfast.adapters.local.attempt_environment import AttemptEnvironment, error_file
from holdfast.adapters.local.attempt_reports import AttemptReports
from holdfast.adapters.local.job_inspections import AttemptRanks, JobInspections
from holdfast.adapters.local.job_launch import Launch
from holdfast.adapters.local.job_progress import JobProgress
from holdfast.adapters.local.launched_ranks import LaunchedRanks
from holdfast.adapters.local.layout import RunDir
from holdfast.adapters.local.machine import LocalMachine
from holdfast.adapters.local.machines import LocalMachines
from holdfast.adapters.local.store import LocalStore
from holdfast.adapters.local.straggler_watch import StragglerWatch
from holdfast.decisions.crash_text import crash_text, error_file_text
from holdfast.decisions.flight_recorder import dump_files
from holdfast.decisions.hangs import AttemptProgress, is_unarmed, silence
from holdfast.kit.bounded_files import end_text
from holdfast.model.job_views import JobView, RankView, SlowRank
from holdfast.model.jobs import Ending, JobPhase, JobRecord, JobSpec
from holdfast.model.names import Reason
from holdfast.model.set_aside import SetAside
from holdfast.ports.clock import Clock

_TAIL_BYTES: Final = 1 << 16
"""Bytes at the end of a log to search for an exception: tracebacks of nine ranks, and
torchrun's."""

_UNWATCHED: Final = (
    "no step reported yet: --hang-timeout takes effect with the first one; to "
    "restart a job that hangs before it, set --startup-timeout"
)


_IMPORTS: Final = timedelta(seconds=30)
"""Time from the start of an attempt to the first sample of its ranks, which import PyTorch."""


class LocalJobs:
    """A ``JobBackend`` over the machines of one run or cluster.

    Args:
        run: directory of the run or cluster.
        machines: machines on which ranks run.
        store: store of the job records.
        launch: how the ranks of a job are launched, by ``JobSpec.name``.
        clock: clock.
        ending: how all jobs end whose ranks are gone; None while they may run.
        prepare: is called with a job, the number of its attempt and the directory of its
            checkpoints before the first rank of an attempt is launched; returns all checkpoints
            that were moved for the job until now.

    """

    def __init__(
        self,
        run: RunDir,
        machines: LocalMachines,
        store: LocalStore,
        launch: Callable[[str], Launch],
        clock: Clock,
        ending: Callable[[], Ending | None] = lambda: None,
        prepare: Callable[[str, int, Path], tuple[SetAside, ...]] = lambda *_: (),
    ) -> None:
        self._run = run
        self._machines = machines
        self._store = store
        self._launch = launch
        self._clock = clock
        self._ending = ending
        self._prepare = prepare
        self._moved: dict[str, tuple[SetAside, ...]] = {}
        self._launched = LaunchedRanks(machines)
        self._environment = AttemptEnvironment(run)
        self._crashes: dict[Path, str] = {}
        self._inspections = JobInspections(clock.now)
        self._matcher = PatternMatcher()
        self._stragglers = StragglerWatch()
        self._progress: dict[str, JobProgress] = {}
        self._reports: dict[str, AttemptReports] = {}

    def jobs(self) -> tuple[JobView, ...]:
        """See ``JobBackend.jobs``."""
        return tuple(
            self._view(spec, record, cancel=cancel)
            for spec, record, cancel in self._store.active_jobs().values()
        )

    def close(self) -> None:
        """End the process that matches log rules."""
        self._matcher.close()

    def moved_checkpoints(self) -> Mapping[str, tuple[SetAside, ...]]:
        """See ``JobBackend.moved_checkpoints``."""
        return self._moved

    def view(self, job: str) -> JobView:
        """Return one job, active or ended.

        Raises:
            KeyError: there is no such job.

        """
        spec, record, cancel = self._store.job(job)
        return self._view(spec, record, cancel=cancel)

    def put(self, job: str, record: JobRecord) -> None:
        """See ``JobBackend.put``."""
        self._store.put_job(job, record)

    def launch(self, job: str) -> None:
        """See ``JobBackend.launch``."""
        spec, record, _ = self._store.job(job)
        launch = self._launch(job)
        launched = self._launched.current(job, record)
        if leaving := self._launched.leaving(job, record):
            for _, left in leaving:
                left.terminate_task()
            return
        if not launched and not self._is_shared(job, launch.checkpoint_dir):
            self._moved[job] = self._prepare(job, record.attempt, launch.checkpoint_dir)
        running = {rank for rank, _ in launched}
        for rank, name in enumerate(record.placement):
            machine = self._machines.get(name)
            if machine is not None and rank not in running:
                machine.launch(
                    self._launched.add(job, record, rank),
                    launch.argv,
                    self._environment.of_rank(spec, record, rank, launch),
                    self._run.of_job(job).log(record.attempt, rank),
                    launch.directory,
                )

    def _is_shared(self, job: str, folder: Path) -> bool:
        """Whether another job, which may be running, saves to the same directory."""
        others = (other for other in self._store.active_jobs() if other != job)
        return any(self._launch(other).checkpoint_dir == folder for other in others)

    def stop(self, job: str) -> None:
        """See ``JobBackend.stop``."""
        for _, machine in self._remaining(job):
            machine.terminate_task()

    def kill(self, job: str, nodes: Collection[str] = ()) -> None:
        """See ``JobBackend.kill``."""
        for _, machine in self._remaining(job):
            if not nodes or machine.name in nodes:
                machine.kill_task(self._clock.now())

    def _remaining(self, job: str) -> list[tuple[int, LocalMachine]]:
        record = self._store.job(job)[1]
        return [*self._launched.current(job, record), *self._launched.leaving(job, record)]

    def occupied(self) -> frozenset[str]:
        """Return the nodes on which a rank of an active job is running."""
        return frozenset(
            one.node
            for job in self.jobs()
            for one in (*job.ranks, *job.leaving)
            if one.exit_code is None
        )

    def _view(self, spec: JobSpec, record: JobRecord, *, cancel: bool) -> JobView:
        reports = self._reports_of(spec, record)
        progress = reports.read()
        limits = self._launch(spec.name).hang_limits
        observed = self._observed(spec.name, record, progress)
        hang = silence(limits, observed, reason=Reason.JOB_HUNG, missing="no new step was reported")
        rule = reports.hang() if record.phase is JobPhase.RUNNING else None
        hang = min(filter(None, (hang, rule)), key=lambda one: one.at, default=None)
        attempt, stall = self._attempt_ranks(spec, record), ""
        if hang is not None:
            hang = self._inspections.inspected(attempt, hang)
        else:
            found = self._progress_of(spec.name).suspicion(observed.known_until)
            stall = self._inspections.stalled(attempt, found)
        ranks, abort = self._ranks(spec.name, record), None
        if record.phase is JobPhase.RUNNING:
            ranks, abort = self._inspections.after_timeouts(attempt, ranks)
        is_running = any(one.exit_code is None for one in ranks)
        return JobView(
            spec=spec,
            record=record,
            ranks=ranks,
            leaving=self._leaving(spec.name, record),
            ending=None if is_running else self._ending(),
            first_step=progress.first,
            step=progress.last,
            hung_since=hang.since if hang is not None else None,
            hung_reason=hang.reason if hang is not None else Reason.JOB_HUNG,
            hung_evidence=hang.evidence if hang is not None else "",
            unwatched=reports.rejected or (_UNWATCHED if is_unarmed(limits, observed) else ""),
            suspected_hang=stall,
            loss_fault=reports.fault,
            abort=abort,
            straggler=self._straggler(spec.name, record) if is_running else None,
            cancel_requested=cancel,
        )

    def _ranks(self, job: str, record: JobRecord) -> tuple[RankView, ...]:
        own = self._run.of_job(job)
        return tuple(
            RankView(
                rank=rank,
                node=machine.name,
                exit_code=machine.task.exit_code,
                ended_at=machine.task.ended_at,
                reason=self._crash(own.log(record.attempt, rank), machine.task.exit_code),
            )
            for rank, machine in self._launched.current(job, record)
            if machine.task is not None
        )

    def _leaving(self, job: str, record: JobRecord) -> tuple[RankView, ...]:
        return tuple(
            RankView(rank=rank, node=machine.name)
            for rank, machine in self._launched.leaving(job, record)
        )

    def _straggler(self, job: str, record: JobRecord) -> SlowRank | None:
        """Return which rank slows a job down; None if none is known."""
        if (
            record.phase is not JobPhase.RUNNING
            or self._clock.now() < record.phase_since + _IMPORTS
        ):
            return None
        launch, file = self._launch(job), self._run.of_job(job).stragglers(record.attempt)
        nodes = self._node_ranks(record, launch)
        found = self._stragglers.found(job, record.attempt, nodes, launch.straggler_factor, file)
        return None if found is None else SlowRank(text=found.text, node=found.node)

    def _node_ranks(self, record: JobRecord, launch: Launch) -> list[NodeRanks]:
        return [
            _node_ranks(rank, name, self._machines.get(name), launch)
            for rank, name in enumerate(record.placement)
        ]

    def _reports_of(self, spec: JobSpec, record: JobRecord) -> AttemptReports:
        known = self._reports.get(spec.name)
        if known is None or known.attempt != record.attempt:
            launch = self._launch(spec.name)
            known = AttemptReports(
                self._run.of_job(spec.name),
                record.attempt,
                record.placement,
                launch.loss_limits,
                JobLogRules(self._matcher, launch.log_rules),
                self._clock,
                continues_logs=bool(record.exchanged),
            )
            self._reports[spec.name] = known
        return known

    def _attempt_ranks(self, spec: JobSpec, record: JobRecord) -> AttemptRanks:
        launch, own = self._launch(spec.name), self._run.of_job(spec.name)
        dumps = str(self._environment.files(spec, record, launch).dumps)
        return AttemptRanks(
            job=spec.name,
            attempt=record.attempt,
            since=record.started_at or record.phase_since,
            nodes=self._node_ranks(record, launch),
            files=dump_files(launch.environment, dumps),
            environment=launch.environment,
            evidence=own.evidence(record.attempt),
        )

    def _crash(self, log: Path, exit_code: int | None) -> str:
        """Return why a rank failed, from its log, which is read once; empty while it runs."""
        if not exit_code:
            self._crashes.pop(log, None)
            return ""
        if log not in self._crashes:
            reported = error_file_text(end_text(error_file(log), _TAIL_BYTES))
            self._crashes[log] = reported or crash_text(end_text(log, _TAIL_BYTES))
        return self._crashes[log]

    def _progress_of(self, job: str) -> JobProgress:
        if job not in self._progress:
            self._progress[job] = JobProgress(self._launch(job), self._clock)
        return self._progress[job]

    def _observed(self, job: str, record: JobRecord, progress: Progress) -> AttemptProgress:
        began_at, known = record.phase_since, self._progress_of(job)
        is_running = record.phase is JobPhase.RUNNING
        if is_running:
            nodes = self._node_ranks(record, self._launch(job))
            known.look(began_at=began_at, step=progress.last, nodes=nodes)
        else:
            known.end()
        return AttemptProgress(
            started_at=began_at + known.set_by,
            last_at=known.steps.step_at,
            known_until=known.looked_at if is_running else None,
            last=f"step {progress.last}",
        )


def _node_ranks(rank: int, name: str, machine: LocalMachine | None, launch: Launch) -> NodeRanks:
    process = machine.process if machine is not None else None
    return NodeRanks(
        node_rank=rank,
        node=name,
        root=process.pid if process is not None else None,
        spare=frozenset(machine.agent_processes() if machine is not None else ()),
        local_world_size=launch.nproc_per_node,
        kernel_logs=(DEVICE, *([machine.directory.kmsg] if machine is not None else ())),
    )
