"""One run, from its first machine to its last process: its components and its loop."""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.adapters.local.checks import LocalChecks
from holdfast.adapters.local.cluster import POLL, LocalCluster
from holdfast.adapters.local.job_launch import Launch
from holdfast.adapters.local.jobs import LocalJobs
from holdfast.adapters.local.layout import NodeDir, RunDir
from holdfast.adapters.local.machines import Delays, LocalMachines
from holdfast.adapters.local.store import LocalStore, Submission
from holdfast.apps.clock import SystemClock
from holdfast.apps.run import checkpoints as attempt_checkpoints
from holdfast.apps.run.logs import RankLogs
from holdfast.apps.run.prepare import new_job_id
from holdfast.apps.run.reconcilers import agent_command, reconcilers
from holdfast.apps.run.save_watches import SaveWatches
from holdfast.apps.run.screen import RunSnapshot, Screen
from holdfast.apps.run.settings import RunSettings
from holdfast.apps.run.summary import Summary, summarize
from holdfast.apps.run.waiting import Waiting
from holdfast.decisions.hangs import HangLimits
from holdfast.engine.job_reconciler import JobReconciler
from holdfast.engine.node_reconciler import NodeReconciler
from holdfast.engine.repeats import RepeatLimiter
from holdfast.kit.processes import become_subreaper
from holdfast.model.errors import BackendError
from holdfast.model.events import CheckpointChosen, Event
from holdfast.model.jobs import JobPhase, JobRecord, JobSpec
from holdfast.model.set_aside import SetAside


class RunSession:
    """Runs one job on its own cluster of local machines."""

    def __init__(self, settings: RunSettings, run: RunDir, screen: Screen, logs: RankLogs) -> None:
        self._settings = settings
        self._job_id = new_job_id(settings.name)
        self._run = run
        self._screen = screen
        self._logs = logs
        self._clock = SystemClock()
        self._store = LocalStore(run.state, create=True)
        delays = Delays(
            boot=settings.config.machines.boot_time, replace=settings.config.machines.boot_time
        )
        self._machines = LocalMachines(run, self._store, self._clock, delays, self._agent)
        checks = LocalChecks(self._machines, self._clock)
        self._cluster = LocalCluster(self._machines, self._store, checks, self._clock, self)
        launch = self._launch()
        self._jobs = LocalJobs(
            run,
            self._machines,
            self._store,
            lambda _: launch,
            self._clock,
            prepare=self._prepare,
        )
        self._waiting = Waiting(run, self._machines, self._clock, settings.grace)
        self._watches = SaveWatches(run.watch_log, self._clock.now())

    def run(self) -> JobRecord:
        """Run the job to its end. No process of it is left afterwards.

        Raises:
            BackendError: the state could not be written, as on a full disk, when a signal asked to
                end, or it is damaged; the job was stopped.

        """
        become_subreaper()
        nodes, jobs = self._reconcilers()  # before: they notice a clock that is set from now on
        self._submit()
        repeats = RepeatLimiter(self)
        try:
            with self._waiting.signals() as woken:
                for _ in range(self._settings.nodes + self._settings.spares):
                    self._machines.add()
                while not self._is_killed():
                    try:
                        if self._record().phase.is_final:
                            break
                        self._round(nodes, jobs, woken)
                    except BackendError as error:
                        self._waiting.after_error(error, repeats, woken)
        finally:
            self._watches.close()
            self._jobs.close()
            self._machines.shut_down()
            self._waiting.close()
        self._give_up()
        self._show()
        for rank, line in self._logs.rest(self._record().attempt):
            self._screen.log(rank, line)
        self._screen.close()
        return self._record()

    def summary(self) -> Summary:
        """Return the summary of the run."""
        return summarize(self._store, self._settings.name, directory=str(self._run.path))

    @property
    def stopped_by(self) -> int | None:
        """Return the first signal that asked the run to end; None if there was none."""
        return self._waiting.stop_signals[0] if self._waiting.stop_signals else None

    def close(self) -> None:
        """Close the state."""
        self._store.close()

    def emit(self, event: Event) -> None:
        """Store and show an event: this object is the engine's ``EventSink``."""
        at = self._clock.now()
        with contextlib.suppress(BackendError):
            self._store.add_event(at, event)
        self._screen.event(at, event)

    def _prepare(self, job: str, attempt: int, folder: Path) -> tuple[SetAside, ...]:
        """Verify the checkpoint from which the attempt resumes; returns what was moved for it."""

        def report(why: str) -> None:
            self.emit(CheckpointChosen(job=job, attempt=attempt, why=why))

        settings = self._settings
        prepared = attempt_checkpoints.prepare(
            folder,
            settings.config.jobs.checkpoint_depth,
            policy=settings.config.checkpoints,
            copies=settings.config.checkpoints.restore_from,
            attempt=attempt_checkpoints.attempt_of(self._job_id, self._record()),
            is_named=settings.checkpoint_dir is not None,
            report=report,
        )
        for why in prepared.lines:
            report(why)
        return prepared.moved

    def _submit(self) -> None:
        settings = self._settings
        now = self._clock.now()
        spec = JobSpec(
            name=settings.name,
            nodes=settings.nodes,
            max_retries=settings.max_retries,
            max_app_retries=settings.max_app_retries,
            grace=settings.grace,
            fault_grace=settings.grace,
            keeps_ranks=settings.keeps_ranks,
        )
        submission = Submission(
            id=self._job_id,
            name=settings.name,
            command=tuple(settings.command),
            pid=os.getpid(),
            started_at=now,
            checkpoint_dir=str(self._launch().checkpoint_dir),
        )
        record = JobRecord(phase=JobPhase.WAITING, phase_since=now)
        self._store.add_job(spec, record, submission)

    def _reconcilers(self) -> tuple[NodeReconciler, JobReconciler]:
        config = self._settings.config
        return reconcilers(
            self._cluster,
            self._machines,
            self._jobs,
            self._store,
            events=self,
            clock=self._clock,
            node_policy=config.nodes,
            job_policy=config.jobs,
        )

    def _round(self, nodes: NodeReconciler, jobs: JobReconciler, woken: int) -> None:
        now = self._clock.now()
        boot_at = self._machines.boot_due()
        wake_at = min(nodes.step(), jobs.step(), now + POLL)
        if self._settings.config.checkpoints.watch:
            self._watches.advance([self._launch().checkpoint_dir], now)
        self._store.back_up_changes()
        self._show()
        if self._waiting.stop_signals:
            self._store.cancel_job(self._settings.name)
        self._waiting.until(min(wake_at, boot_at) if boot_at is not None else wake_at, woken)

    def _show(self) -> None:
        if not self._screen.is_behind:
            for rank, line in self._logs.lines(self._record().attempt):
                self._screen.log(rank, line)
        self._screen.moment(self._snapshot)

    def _snapshot(self) -> RunSnapshot:
        job = self._jobs.view(self._settings.name)
        return RunSnapshot(now=self._clock.now(), cluster=self._cluster.snapshot(), job=job)

    def _record(self) -> JobRecord:
        return self._store.job(self._settings.name)[1]

    def _give_up(self) -> None:
        """Close the record of a job that had no time to stop."""
        record = self._record()
        if not record.phase.is_final:
            now, reason = self._clock.now(), "stopped immediately on request"
            over = replace(record, phase=JobPhase.CANCELLED, phase_since=now, reason=reason)
            self._store.put_job(self._settings.name, over)

    def _is_killed(self) -> bool:
        """Whether a second signal asked to end, while the job is still being stopped."""
        return len(self._waiting.stop_signals) > 1

    def _launch(self) -> Launch:
        settings = self._settings
        return Launch(
            argv=settings.command,
            nproc_per_node=settings.nproc_per_node,
            checkpoint_dir=settings.checkpoint_dir or self._run.checkpoints,
            master_port=settings.master_port,
            hang_limits=HangLimits(startup=settings.startup_timeout, pause=settings.hang_timeout),
            log_rules=settings.log_rules,
            stall_limits=settings.config.jobs.stall_limits,
            straggler_factor=settings.config.jobs.straggler_factor,
            loss_limits=settings.config.jobs.loss_limits,
        )

    def _agent(self, name: str, directory: NodeDir) -> Sequence[str]:
        return agent_command(name, directory, self._settings.config.machines)
