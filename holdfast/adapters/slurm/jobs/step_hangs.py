"""Step rate and suspected hangs of a supervised step, from the steps that it reports."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from holdfast.adapters.slurm.commands.comment import ReportedHang, ReportedProgress
from holdfast.decisions.hang_settings import TIMEOUT_VARIABLE, parse_hang_settings
from holdfast.decisions.step_progress import (
    StepProgress,
    SuspectedHang,
    after_look,
    suspected_hang,
)
from holdfast.decisions.step_rate import KnownSteps, step_rate, with_step

_FIRST_REPORT: Final = timedelta(seconds=20)
"""Time from the start of an attempt to its first report of the step rate."""

_REPORTS: Final = timedelta(minutes=5)
"""Time between two reports: each changes the Comment of the job."""


class StepHangs:
    """Progress of the attempts of one step.

    Args:
        environment: of the step; has the settings.

    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._settings, self.problems = parse_hang_settings(environment)
        self._progress = StepProgress()
        self._began_at = datetime.now(UTC)
        self._hang: SuspectedHang | None = None
        self._reported: SuspectedHang | None = None
        self._steps: KnownSteps = ()
        self._due_at = self._began_at

    @property
    def text(self) -> str:
        """Why the step seems to hang, for people to read; empty if it does not."""
        return "" if self._hang is None else f"the step seems to hang: {self._hang.evidence}"

    def begin(self) -> None:
        """Begin the next attempt."""
        self._began_at, self._hang, self._reported = datetime.now(UTC), None, None
        self._steps, self._due_at = (), self._began_at + _FIRST_REPORT
        self.look(None)

    def look(self, step: int | None) -> bool:
        """Take in the last step of the attempt. Returns whether the attempt has to be stopped.

        A start that takes long is never stopped: nothing was learned of its checkpoint.
        """
        now, began_at = datetime.now(UTC), self._began_at
        self._progress = after_look(self._progress, began_at=began_at, step=step, now=now)
        if step is not None:
            self._steps = with_step(self._steps, now, step)
        self._hang = suspected_hang(self._progress, self._settings.limits, now)
        return self._settings.restarts and self._hang is not None and self._hang.step is not None

    def notice(self) -> str:
        """Return what a person has to know of a hang that does not stop the step, once."""
        if self._hang is None or self._hang == self._reported:
            return ""
        self._reported = self._hang
        if self._settings.restarts and self._hang.step is not None:
            return ""
        return f"{self.text}; it is restarted only with {TIMEOUT_VARIABLE}"

    def progress(self, attempt: int) -> ReportedProgress | None:
        """Return the last step and the step rate from time to time; None in between."""
        now, rate = datetime.now(UTC), step_rate(self._steps)
        if now < self._due_at or rate is None:
            return None
        self._due_at = now + _REPORTS
        return ReportedProgress(attempt=attempt, step=self._steps[-1][1], steps_per_second=rate)

    def report(self, attempt: int) -> ReportedHang | None:
        """Return what the controller has to know; None if the step does not seem to hang."""
        if self._hang is None:
            return None
        return ReportedHang(attempt=attempt, step=self._hang.step, since=self._hang.since)
