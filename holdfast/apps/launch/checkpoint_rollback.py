"""Makes ranks resume from a checkpoint before a bad loss: runs ``holdfast checkpoint verify``."""

import os
import sys
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from holdfast.decisions.checkpoint_choice import ResumeOutcome
from holdfast.decisions.launch_events import CheckpointsVerified
from holdfast.decisions.loss_settings import bad_loss_text
from holdfast.decisions.notice_lines import checkpoint_line
from holdfast.decisions.restart_rungs import BadStep
from holdfast.kit.printed_value import PrintedValue
from holdfast.model.jobs import ATTEMPT_VARIABLE

_NAMED: Final = 5
"""Checkpoints that a message names."""

_OF_ATTEMPTS: Final = (ATTEMPT_VARIABLE, "SLURM_RESTART_COUNT")
"""Variables that number attempts: a restart in place begins none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The part of the output of ``holdfast checkpoint verify`` that is used here."""

    outcome: str = ""
    """A ``ResumeOutcome``; empty if the verification failed."""

    checkpoint: str | None = None
    aside: tuple[str, ...] = ()


class CheckpointRollback:
    """Verification of a checkpoint directory while no rank runs, in a process of its own.

    Where it fails, nothing is changed and the ranks restart, as at the start of an attempt; only if
    a person has to decide they do not.

    Args:
        folder: the directory.
        bad: the loss for which the ranks were stopped.
        restarts: number of restarts of the job, this one included.
        limit: time after which it has failed.

    """

    def __init__(self, folder: str, bad: BadStep, restarts: int, limit: timedelta) -> None:
        self.restarts = restarts
        self._folder = folder
        command = [sys.executable, "-m", "holdfast", "checkpoint", "verify", folder]
        options = ["--job-stopped", "--bad-loss", bad_loss_text(bad.step, bad.at), "-o", "json"]
        environment = {name: text for name, text in os.environ.items() if name not in _OF_ATTEMPTS}
        self._printed = PrintedValue(
            Chosen, [*command, *options], limit_s=limit.total_seconds(), environment=environment
        )

    @property
    def pid(self) -> int:
        """Process that verifies."""
        return self._printed.pid

    def result(self) -> CheckpointsVerified | None:
        """Return the result, and print what is resumed from; None while it is not known."""
        found = self._printed.value(Chosen())
        if found is None:
            return None
        sys.stderr.write(f"{checkpoint_line(_text(self._folder, found))}\n")
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


def _text(folder: str, found: Chosen) -> str:
    if found.outcome != ResumeOutcome.RESUME:
        why = found.outcome or "not verified"
        return f"{folder}: {why}; to see why: holdfast checkpoint verify {folder} --dry-run"
    text = f"{folder}: the ranks resume from {found.checkpoint or 'what their program selects'}"
    if not found.aside:
        return text
    more = len(found.aside) - _NAMED
    names = ", ".join(found.aside[:_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"{text}; set aside: {names}"
