"""A simulated job: its ranks, its steps and its checkpoints."""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from holdfast.adapters.sim.checkpoints import SimCheckpoints
from holdfast.adapters.sim.machine import Power, SimMachine
from holdfast.adapters.sim.scenario import Crash, Training
from holdfast.model.job_views import JobView, RankView
from holdfast.model.jobs import JobPhase, JobRecord, Placing

SIGTERM_EXIT = -15
SIGKILL_EXIT = -9


@dataclass(slots=True)
class SimRank:
    """The process of one node rank in one attempt."""

    rank: int
    node: str
    machine: SimMachine
    boot: int
    attempt: int
    exit_code: int | None = None
    ended_at: datetime | None = None
    is_terminated: bool = False
    is_killed: bool = False
    is_evicted: bool = False
    is_reported: bool = True
    """Whether its machine reported its end, once it has ended."""

    @property
    def is_lingering(self) -> bool:
        """Whether a platform that queries its machine still considers it running."""
        if self.exit_code is None:
            return True
        is_back = self.machine.power is Power.ON and self.machine.boot != self.boot
        return not self.is_reported and not is_back

    @property
    def is_reachable(self) -> bool:
        """Whether a signal would reach it."""
        return self.machine.power is Power.ON and self.machine.boot == self.boot

    def end(self, exit_code: int, now: datetime) -> None:
        """End the process, unless it has ended."""
        if self.exit_code is None:
            self.exit_code, self.ended_at = exit_code, now


@dataclass(slots=True)
class SimJob:
    """Actual state of a job. Its record is what the engine stored, ranks are processes."""

    training: Training
    record: JobRecord
    ranks: list[SimRank] = field(default_factory=list)
    cancel_requested: bool = False
    saved_step: int = 0
    """Step of the last checkpoint, from which the next attempt resumes."""

    checkpoints: SimCheckpoints | None = None
    """None if none of its checkpoints is bad: each attempt then resumes from ``saved_step``."""

    crashes_left: dict[Crash, int] = field(default_factory=dict)
    is_released: bool = False
    """Whether its operator wants its ranks placed; as all below, where a scheduler places them."""

    is_stop_seen: bool = False
    """Whether its operator has seen the request to stop."""

    bound: dict[int, str] = field(default_factory=dict)
    """Nodes of ranks that have one and do not run yet."""

    _first_step: int = 0
    _runs_from: datetime | None = None
    """Time of the attempt's first step; None before all its ranks run."""

    _is_poisoned: bool = False
    """Whether the attempt fails in its first step because of its checkpoint."""

    _halted_at: datetime | None = None
    """Time when a rank ended or froze, so that the others block on it."""

    def view(self, now: datetime) -> JobView:
        """State of the job that a backend sees."""
        attempt = self.record.attempt
        step = self.step(now)
        return JobView(
            spec=self.training.spec,
            record=self.record,
            ranks=tuple(
                RankView(
                    rank=one.rank, node=one.node, exit_code=one.exit_code, ended_at=one.ended_at
                )
                for one in self.ranks
                if one.attempt == attempt
            ),
            first_step=None if step is None else self._first_step,
            step=step,
            cancel_requested=self.cancel_requested,
        )

    def living(self) -> list[SimRank]:
        """Ranks of any attempt that have not ended."""
        return [one for one in self.ranks if one.exit_code is None]

    def lingering(self) -> list[SimRank]:
        """Ranks of any attempt that have not ended as far as their platform knows."""
        return [one for one in self.ranks if one.is_lingering]

    def places(self) -> list[str]:
        """Nodes of the ranks that linger, and of those that are bound to one."""
        return [*(one.node for one in self.lingering()), *self.bound.values()]

    def step(self, now: datetime) -> int | None:
        """Last step of the current attempt; None before its first."""
        if self._runs_from is None:
            return None
        until = now if self._halted_at is None else min(now, self._halted_at)
        if until < self._runs_from:
            return None
        return min(self.training.steps, self._first_step + self._steps_in(until - self._runs_from))

    def saved_by(self, now: datetime) -> int:
        """Step of the last checkpoint that was complete by then."""
        if self._runs_from is None or self._halted_at is not None or now < self._runs_from:
            return self.saved_step
        legs = (now - self._runs_from) // self._leg
        return min(self.training.steps, self._first_step + legs * self.training.checkpoint_steps)

    def begin(self, now: datetime) -> None:
        """All ranks of the attempt run: resume from the last checkpoint."""
        self._is_poisoned = False
        if self.checkpoints is not None:
            self.saved_step, self._is_poisoned = self.checkpoints.resume(self.record, now)
        self._first_step = self.saved_step
        self._runs_from = now + self.training.load_time
        self._halted_at = None

    def begin_attempt(self, attempt: int) -> None:
        """Forget the ranks that have ended and the progress of the attempt before."""
        self.ranks = [one for one in self.ranks if one.attempt == attempt or one.exit_code is None]
        self._runs_from = None

    def halt(self, now: datetime) -> None:
        """A rank has ended or frozen: keep the saved checkpoint, stop stepping."""
        if self._halted_at is None:
            before, self.saved_step = self.saved_step, self.saved_by(now)
            if self.checkpoints is not None:
                self._save(before, now)
            self._halted_at = now

    def _save(self, before: int, now: datetime) -> None:
        """Save the checkpoints that the attempt had saved when it halted, oldest first."""
        assert self.checkpoints is not None  # noqa: S101 - the caller has checked
        pace = self.training.checkpoint_steps
        for step in range(before + pace, self.saved_step + 1, pace):
            left = (self.saved_step - step) // pace
            self.checkpoints.save(step, now - left * self._leg)

    def resume(self, now: datetime) -> None:
        """The frozen rank works again: continue where the job halted."""
        if self._halted_at is not None and self._runs_from is not None:
            self._runs_from += now - self._halted_at
            self._halted_at = None

    @property
    def is_at_work(self) -> bool:
        """Whether all its ranks run, and none was requested to end."""
        return self._runs_from is not None and not self._halted_at and not self.cancel_requested

    def next_end(self) -> tuple[datetime, Crash | None] | None:
        """Time when the running attempt will crash or finish (then without a crash)."""
        if self._runs_from is None or self._halted_at is not None:
            return None
        if self._is_poisoned:
            return self._runs_from + self._time_to(1), Crash(step=self._first_step + 1, times=1)
        crashes = [
            crash
            for crash, left in self.crashes_left.items()
            if left and self._first_step <= crash.step <= self.training.steps
        ]
        crash = min(crashes, key=lambda one: one.step, default=None)
        target = self.training.steps if crash is None else crash.step
        return self._runs_from + self._time_to(target - self._first_step), crash

    def put(self, record: JobRecord) -> None:
        """Store the record; a new attempt starts without progress."""
        if record.attempt != self.record.attempt:
            self.begin_attempt(record.attempt)
        self.record = record

    def _steps_in(self, time: timedelta) -> int:
        """Steps that fit into a duration, excluding the pauses for checkpoints."""
        training = self.training
        legs, rest = divmod(time, self._leg)
        return legs * training.checkpoint_steps + min(
            training.checkpoint_steps, rest // training.step_time
        )

    @property
    def _leg(self) -> timedelta:
        """Time from one checkpoint to the next."""
        training = self.training
        return training.checkpoint_steps * training.step_time + training.checkpoint_time

    def _time_to(self, steps: int) -> timedelta:
        training = self.training
        checkpoints = max(0, steps - 1) // training.checkpoint_steps
        return steps * training.step_time + checkpoints * training.checkpoint_time


def first_record(training: Training, now: datetime) -> JobRecord:
    """The record of a job when it is submitted: where a scheduler places it, it has begun."""
    if training.spec.placing is Placing.SCHEDULER:
        return JobRecord(phase=JobPhase.STARTING, phase_since=now, attempt=1, started_at=now)
    return JobRecord(phase=JobPhase.WAITING, phase_since=now)


def new_job(training: Training, record: JobRecord) -> SimJob:
    """A job that was just submitted."""
    crashes_left = {crash: crash.times for crash in training.crashes}
    is_released = training.spec.placing is Placing.SCHEDULER
    return SimJob(
        training=training,
        record=replace(record),
        checkpoints=SimCheckpoints(job=training.spec.name, bad=list(training.bad_checkpoints))
        if training.bad_checkpoints
        else None,
        crashes_left=crashes_left,
        is_released=is_released,
    )
