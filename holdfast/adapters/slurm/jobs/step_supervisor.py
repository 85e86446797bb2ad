"""Supervises one step of a job: launches srun, watches its nodes, and relaunches it."""

import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from holdfast.adapters.checkpoints.directory import latest_step
from holdfast.adapters.slurm.commands.comment_reports import ReportedHang, ReportedStraggler
from holdfast.adapters.slurm.jobs.attempts import attempt_number
from holdfast.adapters.slurm.jobs.own_job import OwnJob
from holdfast.adapters.slurm.jobs.srun_command import is_bound, relaunch_command
from holdfast.adapters.slurm.jobs.step_foreground import (
    CheckpointCalls,
    Foreground,
    RunningSrun,
    write_message,
)
from holdfast.adapters.slurm.jobs.step_monitor import StepMonitor
from holdfast.adapters.slurm.jobs.step_output import StepCrash
from holdfast.adapters.slurm.jobs.step_requeue import JobRequeue
from holdfast.adapters.slurm.jobs.training_watch import TrainingWatch
from holdfast.decisions.step_restart import (
    RestartDecision,
    RestartTimeouts,
    StepAction,
    decide_restart,
    format_faults,
)
from holdfast.model.errors import BackendError
from holdfast.model.jobs import (
    ATTEMPT_VARIABLE,
    CHECKPOINT_MIRROR_VARIABLE,
    CHECKPOINT_WATCH_VARIABLE,
    RESTART_REASON_VARIABLE,
    AttemptRecord,
    LossFault,
)

if TYPE_CHECKING:
    from holdfast.decisions.flight_recorder import RankFindings

COMMAND: Final = timedelta(seconds=15)
"""Timeout of one Slurm command. While slurmctld is down, one takes 4 s."""

_FIRST_POLL: Final = timedelta(milliseconds=100)
_POLL: Final = timedelta(seconds=1)
_OUTAGE: Final = timedelta(minutes=2)
"""How long to wait for slurmctld after a step has ended; a restart of it takes seconds."""

_CANCELLED: Final = timedelta(seconds=10)
"""How long to wait for srun to end after its step was cancelled: up to 7.5 s were seen on 22.05."""

_KILLED: Final = timedelta(minutes=2)
"""The same for a step whose nodes answer: Slurm sends SIGKILL after its KillWait, 30 s by default.
No rank may be left when checkpoints are moved."""


class SupervisedStep:
    """A step and its supervisor.

    Args:
        job: number of the job.
        srun: command line of the step.
        environment: of srun.
        foreground: this process, entered.
        saves: what is done with its checkpoints.
        timeouts: of the restart ladder.
        poll: time between two checks of the nodes while the step runs.
        max_retries: restarts of the step if the Comment of the job has no ``max-retry``.

    """

    def __init__(
        self,
        *,
        job: str,
        srun: Sequence[str],
        environment: Mapping[str, str],
        foreground: Foreground,
        saves: CheckpointCalls,
        timeouts: RestartTimeouts,
        poll: timedelta,
        max_retries: int,
    ) -> None:
        self._slurm = OwnJob(job, COMMAND)
        self._job, self._command, self._environment = job, list(srun), environment
        self._timeouts, self._poll = timeouts, poll
        self._foreground, self._saves = foreground, saves
        self._bound = is_bound(srun)
        self._monitor = StepMonitor(
            self._slurm,
            environment,
            is_bound=self._bound,
            max_retries=max_retries,
            timeout=COMMAND,
        )
        self._requeue = JobRequeue(self._slurm, self._monitor, foreground, timeouts.requeue)
        self._iteration: int | None = None
        self._relaunches = self._stalled = 0
        self._has_dropped_nodes = self._is_stopped_by_watch = False
        self._training = TrainingWatch(
            environment, srun, self._look, lambda: self._monitor.checkpoints
        )
        self._crash = StepCrash(environment)
        self._published: LossFault | None = None
        self._published_hang: ReportedHang | None = None
        self._published_straggler: ReportedStraggler | None = None
        self._ended_at = datetime.now(UTC)

    def run(self) -> int:
        """Run the step until it ends and is not restarted. Returns the exit status of srun.

        Raises:
            BackendError: srun cannot be started.

        """
        for line in self._training.problems:
            write_message(self._foreground, line)
        decision = RestartDecision(action=StepAction.RELAUNCH)
        while decision.action is StepAction.RELAUNCH and not self._foreground.is_ending:
            srun = self._launch(decision)
            status = self._watch(srun)
            decision = self._decide(status)
        if decision.action is StepAction.REQUEUE:
            self._requeue.run(decision.why, self._ended_at)
        return status or int(self._is_stopped_by_watch)

    # The step

    def _launch(self, decision: RestartDecision) -> RunningSrun:
        argv, environment = self._command, dict(self._environment)
        environment.setdefault("SLURM_KILL_BAD_EXIT", "1")  # else the other ranks hang
        nodes, monitor = decision.nodes, self._monitor
        overlap = bool(nodes) and self._end_remains()
        before = monitor.step.nodes if monitor.step is not None else ()
        is_own = not monitor.faults
        ended = self._training.restart(before, is_cause=is_own) if nodes else None
        monitor.start_launch(*nodes)
        self._guard_checkpoints(is_relaunch=bool(nodes), ended=ended)
        if nodes:
            self._relaunches += 1
            argv = relaunch_command(argv, nodes, bound=self._bound, overlap=overlap)
            failure = ended.failure if ended is not None and is_own else None
            environment[RESTART_REASON_VARIABLE] = failure.reason if failure else decision.why
            if self._has_dropped_nodes:
                self._write_info("Job failed - Droping unhealthy nodes")
            self._write_info(f"Updating to new node list {','.join(nodes)}")
            self._write_info(f"Retrying step. Attempt number: {self._relaunches}")
        elif reason := monitor.request.restart_reason_of(monitor.restarts):
            environment[RESTART_REASON_VARIABLE] = reason
        attempt = attempt_number(monitor.restarts, self._relaunches)
        if attempt:
            environment[ATTEMPT_VARIABLE] = str(attempt)
        if monitor.checkpoints is not None:
            environment[CHECKPOINT_WATCH_VARIABLE] = "0"  # this process watches and copies them
            environment[CHECKPOINT_MIRROR_VARIABLE] = ""
        monitor.finish_launch()
        self._is_stopped_by_watch = False
        self._published = None
        environment |= self._training.begin()
        self._crash.begin()
        return self._foreground.launch(argv, environment)

    def _watch(self, srun: RunningSrun) -> int:
        """Check the nodes until srun ends. Returns its exit status."""
        pause, cancelled_at = _FIRST_POLL, 0.0
        next_poll = time.monotonic() + pause.total_seconds()
        while (status := srun.status) is None:
            self._take_signal(timedelta(seconds=next_poll - time.monotonic()))
            if time.monotonic() < next_poll:
                continue
            pause = self._poll if self._monitor.step else min(pause * 2, self._poll)
            next_poll = time.monotonic() + pause.total_seconds()
            with suppress(BackendError):  # slurmctld is down, and the step runs on
                self._check(srun)
            self._check_training()
            if (folder := self._monitor.checkpoints) is not None:
                self._saves.watch_saves(folder)
            if self._monitor.faults or self._is_stopped_by_watch:
                cancelled_at = cancelled_at or time.monotonic()
                self._end_srun(srun, timedelta(seconds=time.monotonic() - cancelled_at))
        return status

    def _check(self, srun: RunningSrun) -> None:
        if self._monitor.find_step(srun.pid):
            self._write_info("process_task_init", task=True)
        elif (step := self._monitor.step) is not None and self._monitor.find_faults():
            write_message(
                self._foreground, f"step {step.id} cancelled: {format_faults(self._monitor.faults)}"
            )
            self._slurm.cancel_step(step.id)

    def _check_training(self) -> None:
        """Stop the step for its loss or a hang, or report them."""
        step = self._monitor.step
        if self._training.read() and not self._is_stopped_by_watch and step is not None:
            with suppress(BackendError):  # slurmctld is down: tried again at the next poll
                self._slurm.cancel_step(step.id)
                self._is_stopped_by_watch = True
                write_message(self._foreground, f"step {step.id} cancelled: {self._training.text}")
        self._report_training()

    def _report_training(self) -> None:
        """Report losses and hangs in the output of the job, and to the controller."""
        for notice in self._training.notices():
            write_message(self._foreground, notice)
        fault = self._training.fault
        if fault is not None and fault != self._published:
            with suppress(BackendError):  # slurmctld is down: tried again at the next poll
                attempt = attempt_number(self._monitor.restarts, self._relaunches)
                self._slurm.report_loss(attempt, fault)
                self._published = fault
        self._report_hang()
        self._report_straggler()

    def _look(self, limit: timedelta) -> "RankFindings":
        """Return what the ranks of the job do, by a step of its own beside theirs."""
        from holdfast.adapters.slurm.commands.rank_stacks import RankStacks  # noqa: PLC0415 - after a hang only
        from holdfast.decisions.flight_recorder import RankFindings  # noqa: PLC0415 - after a hang only

        step = self._monitor.step
        if step is None:
            return RankFindings()
        return RankStacks(None, limit).look(self._job, len(step.nodes))

    def _report_hang(self) -> None:
        attempt = attempt_number(self._monitor.restarts, self._relaunches)
        if progress := self._training.hangs.progress(attempt):
            with suppress(BackendError):  # slurmctld is down: the next report follows
                self._slurm.report_progress(progress)
        hang = self._training.hangs.report(attempt)
        if hang != self._published_hang:
            with suppress(BackendError):  # slurmctld is down: tried again at the next poll
                self._slurm.report_hang(hang)
                self._published_hang = hang

    def _report_straggler(self) -> None:
        """Report the node that ``holdfast launch`` calls slow; it is no reason to stop the step."""
        step = self._monitor.step
        node = "" if step is None else self._training.straggler(step.nodes)
        attempt = attempt_number(self._monitor.restarts, self._relaunches)
        slow = ReportedStraggler(attempt=attempt, node=node) if node else None
        if slow != self._published_straggler:
            with suppress(BackendError):  # slurmctld is down: tried again at the next poll
                self._slurm.report_straggler(slow)
                self._published_straggler = slow

    def _end_srun(self, srun: RunningSrun, since: timedelta) -> None:
        """End a srun that waits for a dead node, ``since`` its step was cancelled."""
        limit = _CANCELLED if self._monitor.faults else _KILLED
        if since > 2 * limit:
            srun.send(signal.SIGKILL)
        elif since > limit:
            srun.send(signal.SIGTERM)

    def _end_remains(self) -> bool:
        """Cancel what is left of the step. True if Slurm still waits for some of it."""
        deadline = time.monotonic() + _CANCELLED.total_seconds()
        while (ended := self._monitor.step) is not None:
            try:
                if all(step.id != ended.id for step in self._slurm.steps()):
                    return False
                self._slurm.cancel_step(ended.id)
            except BackendError as error:
                write_message(self._foreground, str(error))
            if self._take_signal(_POLL) or time.monotonic() > deadline:
                return True
        return False

    def _guard_checkpoints(self, *, is_relaunch: bool, ended: AttemptRecord | None) -> None:
        """Make the framework load a complete checkpoint; wait while a person has to decide."""
        folder = self._monitor.checkpoints
        if folder is None:
            return
        try:
            if self._slurm.steps():
                return  # its ranks may be writing there
        except BackendError as error:
            write_message(self._foreground, str(error))
            return
        attempt = attempt_number(self._monitor.restarts, self._relaunches + is_relaunch)
        reported = ""
        while True:
            try:
                lines, self._iteration = self._saves.prepare(folder, attempt, ended)
            except BackendError as error:  # a person decides; the job's time limit applies
                lines = [] if str(error) == reported else [str(error)]
                reported = str(error)
            else:
                reported = ""
            for line in lines:
                write_message(self._foreground, line)
            if not reported or self._take_signal(_POLL):
                return

    # Restart decision

    def _decide(self, status: int) -> RestartDecision:
        """Return what to do about a step that ended, once that is decided."""
        self._ended_at = datetime.now(UTC)
        self._training.read()
        self._report_training()
        if status or self._is_stopped_by_watch:
            self._training.ended(is_stopped=self._is_stopped_by_watch)
        if self._foreground.is_ending or not (status or self._is_stopped_by_watch):
            return RestartDecision(action=StepAction.END)
        self._write_info("Initiating communication with cluster agent to diagnose health of nodes")
        is_reported = False
        answered_at = time.monotonic()
        began_at: float | None = None
        while True:
            now = time.monotonic()
            try:
                decision = self._next(timedelta(seconds=now - (began_at or now)))
                answered_at, began_at = now, began_at or now
            except BackendError as error:
                if now - answered_at > _OUTAGE.total_seconds():
                    return self._reported(RestartDecision(action=StepAction.END, why=str(error)))
                decision = RestartDecision(action=StepAction.WAIT)
            if self._monitor.faults and not is_reported:
                is_reported = True
                self._report_faults()
            if decision.action is StepAction.EXCHANGE:
                self._exchange(decision)
            elif decision.action is not StepAction.WAIT:
                return self._reported(decision)
            if self._take_signal(self._poll if self._monitor.faults else _POLL):
                return RestartDecision(action=StepAction.END)

    def _next(self, since: timedelta) -> RestartDecision:
        relaunches = self._relaunches - self._training.restarts
        step = self._monitor.read_end(since, relaunches=relaunches)
        if step is None:
            return RestartDecision(action=StepAction.END)  # Slurm reports why
        if self._monitor.request.auto_resume is False:
            return RestartDecision(action=StepAction.END, why="its Comment has auto-resume=0 now")
        step = replace(
            step, stalled=self._stalls(), application_end=self._training.end_of(step.step_nodes)
        )
        decision = decide_restart(step, self._timeouts)
        if decision.action is StepAction.RELAUNCH:
            self._has_dropped_nodes = bool(set(step.step_nodes) - set(decision.nodes))
            self._stalled = step.stalled
        return decision

    def _report_faults(self) -> None:
        write_message(self._foreground, format_faults(self._monitor.faults))
        self._write_info(f"Response from cluster agent: JobId={self._job}, ResumeAction=RETRYSTEP")
        self._write_info("Job failed - replacing nodes")

    def _exchange(self, decision: RestartDecision) -> None:
        why = self._monitor.exchange(decision)
        if why:
            write_message(self._foreground, f"job {self._job}: exchange of nodes failed: {why}")
        else:
            self._write_info("Job Expansion complete")

    def _reported(self, decision: RestartDecision) -> RestartDecision:
        if decision.action is StepAction.END and decision.why:
            if not self._monitor.faults:
                self._write_info(
                    f"Response from cluster agent: JobId={self._job}, ResumeAction=NONE"
                )
            crash = "" if self._monitor.faults else self._crash.text()
            cause = f"; the ranks failed with: {crash}" if crash else ""
            write_message(self._foreground, f"job {self._job} not resumed: {decision.why}{cause}")
        return decision

    def _stalls(self) -> int:
        """Number of consecutive attempts, with this one, in which no checkpoint was saved."""
        folder = self._monitor.checkpoints
        now = None if folder is None else latest_step(folder)
        return self._stalled + 1 if now is not None and now == self._iteration else 0

    def _take_signal(self, timeout: timedelta) -> bool:
        """Wait for a signal. Returns whether the step is to end."""
        self._foreground.wait(timeout)
        return self._foreground.is_ending

    def _write_info(self, text: str, *, task: bool = False) -> None:
        """Write a line in HyperPod's format."""
        step = self._monitor.step.number if self._monitor.step else "0"
        who = f"JobID: {self._job} StepID: {step}{' TaskID: 0' if task else ''}"
        self._foreground.write(f"[Auto Resume] Info: {who} {text}")
