"""Makes ranks resume from a checkpoint before a bad loss: runs ``holdfast checkpoint verify``."""

import math
import os
import sys
from dataclasses import dataclass
from typing import Final

from holdfast.apps.launch.failure_text import described
from holdfast.decisions.checkpoint_choice import ResumeOutcome
from holdfast.decisions.launch_events import CheckpointsVerified
from holdfast.decisions.loss_settings import bad_loss_text
from holdfast.decisions.notice_lines import PRINTED, checkpoint_line
from holdfast.decisions.restart_rungs import BadStep
from holdfast.kit.printed_value import PrintedValue
from holdfast.model.jobs import ATTEMPT_VARIABLE

_NAMED: Final = 5
"""Checkpoints that a message names."""

_TRIES: Final = 2
"""Number of verifications: one may be killed, as when memory runs out. A second failure recurs."""

_OF_ATTEMPTS: Final = (ATTEMPT_VARIABLE, "SLURM_RESTART_COUNT")
"""Variables that number attempts: a restart in place begins none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The part of the output of ``holdfast checkpoint verify`` that is used here."""

    outcome: str = ""
    """A ``ResumeOutcome``; empty if nothing was printed."""

    checkpoint: str | None = None
    aside: tuple[str, ...] = ()


class CheckpointRollback:
    """Verification of a checkpoint directory while no rank runs, in a process of its own.

    Where it fails twice, nothing is changed and the ranks restart, as at the start of an attempt:
    most jobs save far less often than a bad loss is found, so that their newest checkpoint is from
    before it. If it is not, the loss is bad again, and the budget for restarts ends the job. Only
    if a person has to decide do the ranks not restart.

    The coordinator has the timeout, and closes it then.

    Args:
        folder: the directory.
        bad: the loss for which the ranks were stopped.
        restarts: number of restarts of the job, this one included.

    """

    def __init__(self, folder: str, bad: BadStep, restarts: int) -> None:
        self.restarts = restarts
        self._folder = folder
        self._bad = bad
        self._tries = 0
        self._printed = self._started()

    @property
    def pid(self) -> int:
        """Process that verifies."""
        return self._printed.pid

    def result(self) -> CheckpointsVerified | None:
        """Return the result, and print what is resumed from; None while it is not known."""
        found = self._printed.value(Chosen())
        if found is None:
            return None
        problem = "" if found.outcome else _problem(self._printed)
        if problem and self._tries < _TRIES:
            sys.stderr.write(f"{PRINTED}{self._folder}: not verified: {problem}; trying again\n")
            self._printed.close()
            self._printed = self._started()
            return None
        sys.stderr.write(f"{checkpoint_line(_text(self._folder, found, problem))}\n")
        obstacle = ""
        if found.outcome == ResumeOutcome.ASK:
            obstacle = (
                f"{self._folder}: the checkpoint before the bad loss is further back than "
                "HOLDFAST_CHECKPOINT_MAX_ROLLBACK allows; select one with: holdfast checkpoint "
                f"choose {self._folder} NAME, and start the job again"
            )
        return CheckpointsVerified(restarts=self.restarts, obstacle=obstacle)

    def close(self) -> None:
        """End the process if it runs."""
        self._printed.close()

    def _started(self) -> PrintedValue[Chosen]:
        """Return a verification that has just started."""
        self._tries += 1
        command = [sys.executable, "-m", "holdfast", "checkpoint", "verify", self._folder]
        bad_loss = bad_loss_text(self._bad.step, self._bad.at)
        options = ["--job-stopped", "--bad-loss", bad_loss, "-o", "json"]
        environment = {name: text for name, text in os.environ.items() if name not in _OF_ATTEMPTS}
        return PrintedValue(Chosen, [*command, *options], limit_s=math.inf, environment=environment)


def _problem(printed: PrintedValue[Chosen]) -> str:
    """Return why a verification that has ended has no result."""
    if not printed.code:
        return "exit code 0 without a result"
    return described(printed.code, "", printed.errors())


def _text(folder: str, found: Chosen, problem: str) -> str:
    if problem:
        return (
            f"{folder}: not verified: {problem}; the ranks resume from what their program selects, "
            "which may have been saved after the bad loss"
        )
    if found.outcome != ResumeOutcome.RESUME:
        return (
            f"{folder}: {found.outcome}; to see why: holdfast checkpoint verify {folder} --dry-run"
        )
    text = f"{folder}: the ranks resume from {found.checkpoint or 'what their program selects'}"
    if not found.aside:
        return text
    more = len(found.aside) - _NAMED
    names = ", ".join(found.aside[:_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"{text}; set aside: {names}"
