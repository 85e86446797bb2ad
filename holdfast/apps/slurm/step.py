"""One step of a job under supervision: launched, watched, and launched again where that helps."""

import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.directory import latest_step
from holdfast.adapters.slurm.jobs.attempts import attempt_number, restarts_in
from holdfast.adapters.slurm.jobs.comment import Mode, Wish, parse
from holdfast.adapters.slurm.jobs.own_job import OwnJob, Step
from holdfast.adapters.slurm.jobs.resizing import Resizing
from holdfast.adapters.slurm.jobs.supervision import (
    Limits,
    Move,
    Situation,
    Verdict,
    faults_behind,
    faults_under,
    is_bound,
    next_move,
    relaunched,
    reported,
)
from holdfast.adapters.slurm.jobs.text import BatchJob
from holdfast.apps.slurm.srun import ENDING, Signals, Srun, say, write_line
from holdfast.model.errors import BackendError
from holdfast.model.jobs import ATTEMPT_VARIABLE, RESTART_REASON_VARIABLE, JobSpec

CHECKPOINT_VARIABLE: Final = "HOLDFAST_CHECKPOINT_DIR"
"""Names the checkpoints of a job, as the word ``checkpoint`` of its Comment does."""

COMMAND: Final = timedelta(seconds=15)
"""For one of Slurm's commands. While slurmctld is away, one takes 4 s."""

_FIRST_LOOK: Final = timedelta(milliseconds=100)
_LOOK: Final = timedelta(seconds=1)
_AWAY: Final = timedelta(minutes=2)
"""For slurmctld to answer when a step has ended; a restart takes seconds."""

_CANCELLED: Final = timedelta(seconds=10)
"""For srun to end after its step was canceled: up to 7.5 s was seen on Slurm 22.05."""

_SETTLED: Final = timedelta(seconds=10)
"""For Slurm to learn of the slurmd of a node that is back; somebody may resume one before that."""

_REQUEUED: Final = timedelta(minutes=2)
"""For Slurm to end a job that is requeued."""

_ASK_AGAIN: Final = timedelta(seconds=5)
"""Between two looks whether the request for a requeue is still in the Comment."""

_PLAN: Final = JobSpec(name="", nodes=1)
MAX_RETRIES: Final = _PLAN.max_retries
"""Of a job that says nothing of that."""


class SupervisedStep:
    """A step and its supervisor.

    Args:
        job: its number.
        srun: its command line.
        environment: of srun.
        limits: how long is waited for what.
        poll: time between two looks at the nodes while the step runs.
        max_retries: how often it is resumed, if the job does not say so itself.

    """

    def __init__(
        self,
        *,
        job: str,
        srun: Sequence[str],
        environment: Mapping[str, str],
        limits: Limits,
        poll: timedelta,
        max_retries: int,
    ) -> None:
        self._slurm = OwnJob(job, COMMAND)
        self._job, self._command, self._environment = job, list(srun), environment
        self._limits, self._poll, self._retries = limits, poll, max_retries
        self._signals = Signals()
        self._bound = is_bound(srun)
        self._restarts = restarts_in(environment)
        self._known: BatchJob | None = None
        self._srun: Srun | None = None
        self._step: Step | None = None
        self._before: dict[str, str] = {}
        self._faults: dict[str, str] = {}
        self._returned: set[str] = set()
        self._launched_at = 0.0
        self._iteration: int | None = None
        self._relaunches = self._stalled = 0
        self._is_ending = self._dropped = False
        self._ended_at = datetime.now(UTC)
        self._cannot_resize = ""

    def run(self) -> int:
        """Until the step has ended, and is not to run again. Returns how srun ended.

        Raises:
            BackendError: srun cannot be started.

        """
        with self._signals:
            move = Move(verdict=Verdict.RELAUNCH)
            while move.verdict is Verdict.RELAUNCH and not self._is_ending:
                srun = self._launch(move)
                status = self._attend(srun)
                move = self._judge(status)
            if move.verdict is Verdict.REQUEUE:
                self._requeue(move.why)
        return status

    # The step

    def _launch(self, move: Move) -> Srun:
        argv, environment = self._command, dict(self._environment)
        environment.setdefault("SLURM_KILL_BAD_EXIT", "1")  # else the other ranks hang
        overlap = bool(move.nodes) and self._end_remains()
        self._known, self._before = None, {}
        self._returned, self._launched_at = {*self._faults} & {*move.nodes}, time.monotonic()
        with suppress(BackendError):  # it is tried again while the step runs
            self._learn()
        self._guard_checkpoints()
        if move.nodes:
            self._relaunches += 1
            argv = relaunched(argv, move.nodes, bound=self._bound, overlap=overlap)
            environment[RESTART_REASON_VARIABLE] = move.why
            if self._dropped:
                self._tell("Job failed - Droping unhealthy nodes")
            self._tell(f"Updating to new node list {','.join(move.nodes)}")
            self._tell(f"Retrying step. Attempt number: {self._relaunches}")
        elif reason := self._wish.restart_reason_of(self._restarts):
            environment[RESTART_REASON_VARIABLE] = reason
        attempt = attempt_number(self._restarts, self._relaunches)
        if attempt:
            environment[ATTEMPT_VARIABLE] = str(attempt)
        self._step, self._faults, self._cannot_resize = None, {}, ""
        self._srun = Srun(argv, environment, self._signals)
        return self._srun

    def _learn(self) -> None:
        """See to the wish, and remember the job and its nodes as they are when the step begins."""
        known = self._slurm.set_wish("1")
        nodes = self._slurm.nodes(*known.nodes)
        self._known = known
        self._before = {
            name: one.slurmd for name, one in nodes.items() if name not in self._returned
        }

    def _attend(self, srun: Srun) -> int:
        pause, canceled = _FIRST_LOOK, 0.0
        next_look = time.monotonic() + pause.total_seconds()
        while (status := srun.status) is None:
            self._take(timedelta(seconds=next_look - time.monotonic()))
            if time.monotonic() < next_look:
                continue
            pause = self._poll if self._step else min(pause * 2, self._poll)
            next_look = time.monotonic() + pause.total_seconds()
            with suppress(BackendError):  # slurmctld is away, and the step runs on
                self._look(srun)
            if self._faults:
                canceled = canceled or time.monotonic()
                self._insist(srun, timedelta(seconds=time.monotonic() - canceled))
        return status

    def _look(self, srun: Srun) -> None:
        if self._known is None:
            self._learn()
        if self._step is None:
            own = (srun.pid, _host(os.uname().nodename))
            steps = self._slurm.steps()
            self._step = next((one for one in steps if (one.pid, _host(one.host)) == own), None)
            if self._step is not None:
                self._tell("process_task_init", task=True)
        elif self._mode is not Mode.REQUEUE and not self._faults:
            nodes = self._slurm.nodes(*self._step.nodes)
            if time.monotonic() > self._launched_at + _SETTLED.total_seconds():
                self._before = {name: one.slurmd for name, one in nodes.items()} | self._before
            self._faults = faults_under(self._step.nodes, nodes, self._before)
            if self._faults:
                say(f"step {self._step.id} is stopped: {reported(self._faults)}")
                self._slurm.cancel_step(self._step.id)

    def _insist(self, srun: Srun, since: timedelta) -> None:
        """A srun that waits for a dead node is ended; its step was canceled."""
        if since > 2 * _CANCELLED:
            srun.send(signal.SIGKILL)
        elif since > _CANCELLED:
            srun.send(signal.SIGTERM)

    def _end_remains(self) -> bool:
        """End what is left of the step; whether Slurm still waits for some of it."""
        deadline = time.monotonic() + _CANCELLED.total_seconds()
        while self._step is not None:
            try:
                if all(step.id != self._step.id for step in self._slurm.steps()):
                    return False
                self._slurm.cancel_step(self._step.id)
            except BackendError as error:
                say(str(error))
            if self._take(_LOOK) or time.monotonic() > deadline:
                return True
        return False

    def _guard_checkpoints(self) -> None:
        """Make the framework load a complete checkpoint."""
        folder = self._checkpoints
        if folder is None:
            return
        from holdfast.apps.run import checkpoints as attempt_checkpoints  # noqa: PLC0415 - only if there are any

        try:
            if self._slurm.steps():
                return  # they may be writing there
        except BackendError as error:
            say(str(error))
            return
        lines, self._iteration = attempt_checkpoints.prepare_step(folder, self._environment)
        for line in lines:
            say(line)

    # What comes next

    def _judge(self, status: int) -> Move:
        self._ended_at = datetime.now(UTC)
        if status == 0 or self._is_ending:
            return Move(verdict=Verdict.END)
        self._tell("Initiating communication with cluster agent to diagnose health of nodes")
        is_reported = False
        heard_at = time.monotonic()
        began_at: float | None = None
        while True:
            now = time.monotonic()
            try:
                move = self._next(timedelta(seconds=now - (began_at or now)))
                heard_at, began_at = now, began_at or now
            except BackendError as error:
                if now - heard_at > _AWAY.total_seconds():
                    return self._answered(Move(verdict=Verdict.END, why=str(error)))
                move = Move(verdict=Verdict.WAIT)
            if self._faults and not is_reported:
                is_reported = True
                say(reported(self._faults))
                self._tell(
                    f"Response from cluster agent: JobId={self._job}, ResumeAction=RETRYSTEP"
                )
                self._tell("Job failed - replacing nodes")
            if move.verdict is Verdict.RESIZE:
                self._resize(move)
            elif move.verdict is not Verdict.WAIT:
                return self._answered(move)
            if self._take(self._poll if self._faults else _LOOK):
                return Move(verdict=Verdict.END)

    def _next(self, since: timedelta) -> Move:
        job = self._slurm.read()
        if not job.is_at_work or job.restarts != self._restarts:
            return Move(verdict=Verdict.END)  # by a requeue, too: Slurm tells why
        before = self._known
        self._known = job
        if self._wish.auto_resume is False:
            return Move(verdict=Verdict.END, why="its Comment says auto-resume=0 by now")
        names = self._step.nodes if self._step else (before or job).nodes
        nodes = self._slurm.nodes(*dict.fromkeys((*names, *job.nodes)))
        self._faults = {**faults_behind(names, nodes, self._before), **self._faults}
        now = Situation(
            mode=self._mode,
            step_nodes=names,
            allocation=job.nodes,
            nodes=nodes,
            faults=self._faults,
            since=since,
            relaunches=self._relaunches,
            max_retry=self._max_retry,
            stalled=self._stalls(),
            stall_limit=_PLAN.same_step_limit,
            batch_host=self._environment.get("SLURMD_NODENAME", ""),
            is_bound=self._bound,
            cannot_resize=self._cannot_resize,
        )
        move = next_move(now, self._limits)
        if move.verdict is Verdict.RELAUNCH:
            self._dropped = bool(set(names) - set(move.nodes))
            self._stalled = now.stalled
        return move

    def _resize(self, move: Move) -> None:
        """Exchange the bad nodes of the job, once; what becomes of that counts in the next move."""
        slurm = Resizing(COMMAND)
        try:
            job = self._slurm.read()
            why = slurm.refusal(job)
            if not why:
                slurm.exchange(job, move.nodes, move.lacks, self._faults)
                self._tell("Job Expansion complete")
        except BackendError as error:
            why = str(error)
        if why:
            say(f"job {self._job} gets no other nodes: {why}")
        self._cannot_resize = why or "the nodes that it got are not good, either"

    def _answered(self, move: Move) -> Move:
        if move.verdict is Verdict.END and move.why:
            if not self._faults:
                self._tell(f"Response from cluster agent: JobId={self._job}, ResumeAction=NONE")
            say(f"job {self._job} is not resumed: {move.why}")
        return move

    def _stalls(self) -> int:
        """Attempts in a row, this one counted, that have written no checkpoint."""
        folder = self._checkpoints
        now = None if folder is None else latest_step(folder)
        return self._stalled + 1 if now is not None and now == self._iteration else 0

    # The job

    def _requeue(self, why: str) -> None:
        """Have the job requeued. Returns when that has failed, or when it ends us."""
        job = self._known
        if job is None or not job.is_batch or not job.can_requeue:
            say(f"job {self._job} cannot be requeued (submit it with sbatch --requeue): {why}")
            return
        say(f"job {self._job} is to be requeued: {why}")
        if self._ends_within(self._limits.requeue, asks=True):
            return
        if job.restarts >= self._max_retry:
            say(f"the controller has not requeued job {self._job}, and all its retries are used")
            return
        say(f"the controller has not requeued job {self._job}; that is done without it")
        try:
            job = self._slurm.read()
            if job.is_at_work and job.restarts == self._restarts:
                self._slurm.stop_job(job.id)
        except BackendError as error:
            say(str(error))
            return
        if not self._ends_within(_REQUEUED):
            say(f"job {self._job} was not requeued; submit it again")

    def _ends_within(self, timeout: timedelta, *, asks: bool = False) -> bool:
        """Whether Slurm ends the job in that time, or somebody does: by a signal to all of it.

        With ``asks`` the controller is asked for that, again if somebody overwrites the Comment.
        """
        deadline, errors = time.monotonic() + timeout.total_seconds(), set[str]()
        while not self._is_ending and time.monotonic() < deadline:
            try:
                if asks:
                    self._slurm.ask_requeue(self._restarts, self._ended_at)
            except BackendError as error:
                if str(error) not in errors:
                    say(str(error))
                errors.add(str(error))
            left = timedelta(seconds=deadline - time.monotonic())
            self._take(min(left, _ASK_AGAIN) if asks else left)
        return self._is_ending

    @property
    def _wish(self) -> Wish:
        return Wish() if self._known is None else parse(self._known.comment)

    @property
    def _mode(self) -> Mode:
        return self._wish.mode

    @property
    def _max_retry(self) -> int:
        wanted = self._wish.max_retry
        return self._retries if wanted is None else wanted

    @property
    def _checkpoints(self) -> Path | None:
        folder = self._wish.checkpoint or self._environment.get(CHECKPOINT_VARIABLE, "")
        return Path(folder) if folder else None

    def _take(self, timeout: timedelta) -> bool:
        """Wait for a signal, and pass it on. Returns whether somebody wants the step to end."""
        info = self._signals.wait(timeout)
        if info is not None and self._srun is not None:
            self._is_ending |= info.si_signo in ENDING
            self._srun.pass_on(info)
        return self._is_ending

    def _tell(self, text: str, *, task: bool = False) -> None:
        """One line in the words of HyperPod."""
        step = self._step.number if self._step else "0"
        who = f"JobID: {self._job} StepID: {step}{' TaskID: 0' if task else ''}"
        write_line(f"[Auto Resume] Info: {who} {text}")


def _host(name: str) -> str:
    return name.partition(".")[0]
