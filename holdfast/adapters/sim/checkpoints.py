"""Checkpoints of a simulated job, and the choice of the one that an attempt resumes from."""

from dataclasses import dataclass, field, replace
from datetime import datetime

from holdfast.adapters.sim.scenario import BadCheckpoint, CheckpointFault
from holdfast.decisions.checkpoint_choice import ResumeOutcome, choose
from holdfast.decisions.checkpoint_trust import Trust, has_saved, with_attempt, with_end
from holdfast.model.checkpoints import (
    AttemptEnd,
    Checkpoint,
    CheckpointHistory,
    CheckpointState,
    Depth,
    Pointer,
    PointerKind,
    ResumedAttempt,
    Survey,
)
from holdfast.model.jobs import JobRecord
from holdfast.model.set_aside import SUSPECTED, SetAside


@dataclass(slots=True)
class SimCheckpoints:
    """The saved checkpoints of a job, newest first, as ``holdfast run`` would find them."""

    job: str
    """Name of the job."""

    bad: list[BadCheckpoint]
    """Faults of checkpoints that are not saved yet."""

    saved: tuple[Checkpoint, ...] = ()
    poisoned: set[datetime] = field(default_factory=set)
    """Times of the poisoned saves."""

    history: CheckpointHistory = field(default_factory=CheckpointHistory)

    def save(self, step: int, now: datetime) -> None:
        """Save a checkpoint, unless it is the newest one already."""
        if not step or (self.saved and self.saved[0].step == step):
            return
        due = next((one for one in self.bad if one.step <= step), None)
        is_damaged = due is not None and due.fault is CheckpointFault.DAMAGED
        if due is not None:
            self.bad.remove(due)
            if due.fault is CheckpointFault.POISONED:
                self.poisoned.add(now)
        one = Checkpoint(
            name=f"step-{step}",
            step=step,
            is_ended=True,
            changed_at=now,
            state=CheckpointState.DAMAGED if is_damaged else CheckpointState.COMPLETE,
            depth=Depth.HASHES,
        )
        older = tuple(each for each in self.saved if each.step is not None and each.step < step)
        self.saved = (one, *older)

    def resume(self, record: JobRecord, now: datetime) -> tuple[int, bool]:
        """Choose for the next attempt, and move away what must not be loaded.

        Returns:
            The step to resume from, and whether the attempt will fail in its first step.

        """
        self._close(record)
        survey = Survey(
            folder="", format="sim", checkpoints=self.saved, pointer=Pointer(kind=PointerKind.NONE)
        )
        choice = choose(survey, Depth.HASHES, None, Trust(history=self.history))
        one = choice.resume if choice.outcome is ResumeOutcome.RESUME else None
        if one is not None:
            self.saved = tuple(each for each in self.saved if each not in choice.aside)
            moved = tuple(self._moved(each, one, record.attempt, now) for each in choice.aside)
            self.history = replace(self.history, aside=(*self.history.aside, *moved))
        new = ResumedAttempt(
            job=self.job,
            attempt=record.attempt,
            at=now,
            checkpoint=one.name if one is not None else "",
            saved_at=one.changed_at if one is not None else None,
            newest_at=max((each.changed_at for each in self.saved), default=None),
        )
        self.history = replace(self.history, attempts=with_attempt(self.history.attempts, new))
        if one is None or one.step is None:
            return 0, False
        return one.step, one.changed_at in self.poisoned

    def _close(self, record: JobRecord) -> None:
        """Record how the attempt before ended."""
        before = record.attempts[-1] if record.attempts else None
        if before is None or before.failure is None or not self.history.attempts:
            return
        end = AttemptEnd(
            kind=before.failure.kind,
            reason=before.failure.reason,
            first_step=before.first_step,
            last_step=before.last_step,
            has_saved=has_saved(self.saved, self.history.attempts[-1].newest_at),
        )
        attempts = with_end(self.history.attempts, end, self.job, record.attempt)
        self.history = replace(self.history, attempts=attempts)

    def _moved(self, one: Checkpoint, resumed: Checkpoint, attempt: int, now: datetime) -> SetAside:
        return SetAside(
            name=one.name,
            path=f"{self.job}.set-aside/{one.name}",
            why=one.state.value,
            at=now,
            state=one.state.value if one.is_broken else SUSPECTED,
            step=one.step,
            saved_at=one.changed_at,
            job=self.job,
            attempt=attempt,
            resumed=resumed.name,
        )
