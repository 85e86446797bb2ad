"""Progress of the jobs of a run or cluster over their attempts, by the best signal of each."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from functools import partial

from holdfast.adapters.host.fallback_watch import FallbackWatch
from holdfast.adapters.host.rank_stacks import NodeRanks, rank_processes
from holdfast.adapters.local.job_launch import Launch
from holdfast.decisions.fallback_signals import are_steps_known, best_suspicion
from holdfast.decisions.step_progress import (
    StepProgress,
    SuspectedHang,
    after_look,
    dated_anew,
)
from holdfast.engine.clock_offset import ClockOffset
from holdfast.ports.clock import Clock


class JobProgress:
    """Progress of one job.

    Args:
        launch: how its ranks are launched.
        clock: the clock by which steps are dated.

    """

    def __init__(self, launch: Launch, clock: Clock) -> None:
        self._clock = clock
        self._offset = ClockOffset(clock)
        self.looked_at: datetime | None = None
        """Time of the last look, by the clock by which its steps are dated."""

        self.set_by = timedelta(0)
        """By how much the clock was set forward since the attempt began."""

        self.steps = StepProgress()
        self._limits = launch.stall_limits
        self._checkpoints = str(launch.checkpoint_dir)
        devices = launch.environment.get("CUDA_VISIBLE_DEVICES", "")
        self._fallback = FallbackWatch(launch.stall_limits, devices)
        self._found: SuspectedHang | None = None

    def look(self, *, began_at: datetime, step: int | None, nodes: Sequence[NodeRanks]) -> None:
        """Take in what an attempt that runs has reached.

        Args:
            began_at: time at which it began.
            step: its last step; None if it has reported none.
            nodes: nodes on which its ranks run.

        """
        step_of_clock = self._offset.step()
        # Read last: if the clock is set back in between, the last step must not look hours old.
        self.looked_at = now = self._clock.now()
        if self.steps.began_at != began_at:
            self._fallback.begin(self._checkpoints)
            self.set_by = step_of_clock = timedelta(0)
        self.set_by += step_of_clock
        self.steps = dated_anew(self.steps, step_of_clock)
        self.steps = after_look(self.steps, began_at=began_at, step=step, now=now)
        self._found = None
        if are_steps_known(self.steps, self._limits):
            self._fallback.end()
        else:
            self._found = self._fallback.look(now, partial(_processes, nodes))

    def end(self) -> None:
        """Read nothing more of the attempt."""
        self._found = None
        self._fallback.end()

    def suspicion(self, known_until: datetime | None) -> SuspectedHang | None:
        """Return why the job seems to hang; None if it does not.

        Args:
            known_until: everything up to this time is known; None if nothing is known.

        """
        return best_suspicion(self.steps, self._found, self._limits, known_until)


def _processes(nodes: Sequence[NodeRanks]) -> Collection[int]:
    return [pid for _, _, pid in rank_processes(nodes)]
