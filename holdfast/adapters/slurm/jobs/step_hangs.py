"""Step rate and suspected hangs of a supervised step, from the steps that it reports."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.adapters.slurm.commands.comment_reports import ReportedHang, ReportedProgress
from holdfast.decisions.fallback_signals import are_steps_known, best_suspicion
from holdfast.decisions.hang_settings import TIMEOUT_VARIABLE, parse_hang_settings
from holdfast.decisions.step_progress import (
    UNKNOWN_STEPS,
    StepProgress,
    SuspectedHang,
    after_look,
)
from holdfast.decisions.step_rate import KnownSteps, step_rate, with_step
from holdfast.kit.steady_clock import SteadyClock
from holdfast.model.jobs import EVIDENCE_VARIABLE
from holdfast.model.names import Reason

if TYPE_CHECKING:
    from holdfast.adapters.host.fallback_watch import FallbackWatch
    from holdfast.adapters.host.hang_inspection import HangInspector
    from holdfast.decisions.flight_recorder import RankFindings
    from holdfast.decisions.hangs import Hang

EVIDENCE_NAME: Final = "holdfast-evidence-{}.json"
"""Name of the file for the evidence of a hang, with the number of the job."""

_FIRST_REPORT: Final = timedelta(seconds=20)
"""Time from the start of an attempt to its first report of the step rate."""

_FIRST_SURVEY: Final = timedelta(seconds=30)
"""Time from the start of an attempt without steps to the first look at its checkpoints."""

_REPORTS: Final = timedelta(minutes=5)
"""Time between two reports: each changes the Comment of the job."""


class StepHangs:
    """Progress of the attempts of one step.

    Args:
        environment: of the step; has the settings.
        look: returns what the ranks of the step do, within the given time; None if nothing can.
        checkpoints: returns the directory of the checkpoints; None if unknown.

    """

    def __init__(
        self,
        environment: Mapping[str, str],
        look: "Callable[[timedelta], RankFindings] | None" = None,
        checkpoints: "Callable[[], Path | None]" = lambda: None,
    ) -> None:
        self._look = look
        self._checkpoints = checkpoints
        self._saves: FallbackWatch | None = None
        self._inspector: HangInspector | None = None
        self._job = environment.get("SLURM_JOB_ID", "")
        self._file = evidence_file(environment)
        self._attempt, self._seen = 0, ""
        self._settings, self.problems = parse_hang_settings(environment)
        self._progress = StepProgress()
        self._clock = SteadyClock()
        self._began_at = self._clock.now()
        self._hang: SuspectedHang | None = None
        self._rule: Hang | None = None
        self._reported: SuspectedHang | None = None
        self._steps: KnownSteps = ()
        self._due_at = self._began_at

    @property
    def text(self) -> str:
        """Why the step hangs, or seems to, for people to read; empty if it does not."""
        if self._rule is not None:
            return f"{self._rule.evidence}{self._seen}"
        if self._hang is None:
            return ""
        return f"the step seems to hang: {self._hang.evidence}{self._seen}"

    @property
    def reason(self) -> str:
        """Reason code of the hang."""
        return Reason.JOB_HUNG if self._rule is None else self._rule.reason

    def begin(self) -> None:
        """Begin the next attempt."""
        self._began_at, self._hang, self._reported = self._clock.now(), None, None
        self._attempt, self._seen = self._attempt + 1, ""
        self._steps, self._due_at = (), self._began_at + _FIRST_REPORT
        if self._saves is not None:
            self._saves.begin(str(self._checkpoints() or ""))
        self.look(None)

    def look(self, step: int | None, rule: "Hang | None" = None) -> bool:
        """Take in the last step of the attempt. Returns whether the attempt has to be stopped.

        A start that takes long is never stopped: nothing was learned of its checkpoint.

        Args:
            step: last step of the attempt; None if it has reported none.
            rule: hang that the log rules show; None if there is none.

        """
        now, began_at = self._clock.now(), self._began_at
        self._progress = after_look(self._progress, began_at=began_at, step=step, now=now)
        if step is not None:
            self._steps = with_step(self._steps, now, step)
        fallback = self._silence(now)
        hang = best_suspicion(self._progress, fallback, self._settings.limits, now)
        self._rule = rule
        if rule is not None:
            self._hang = None
            return self._is_inspected(rule, restarts=True)
        restarts = hang is not None and self._restarts(hang)
        is_known = hang is not None and self._is_inspected(hang, restarts=restarts)
        self._hang = hang if is_known else None
        return is_known and restarts

    def _silence(self, now: datetime) -> SuspectedHang | None:
        """Return why the step seems to hang by its checkpoints; None if it does not.

        Its ranks run on other nodes, so that their activity is unknown.
        """
        limits = self._settings.limits
        first_at = self._began_at + min(_FIRST_SURVEY, limits.floor)
        if now < first_at or (folder := self._checkpoints()) is None:
            return None
        if are_steps_known(self._progress, limits):
            self.end()
            return None
        if self._saves is None:
            from holdfast.adapters.host.fallback_watch import FallbackWatch  # noqa: PLC0415 - without steps only

            self._saves = FallbackWatch(limits)
            self._saves.begin(str(folder))
        return self._saves.look(now, None)

    def end(self) -> None:
        """End what looks at the checkpoints."""
        if self._saves is not None:
            self._saves.end()

    def _restarts(self, hang: SuspectedHang) -> bool:
        return self._settings.restarts and hang.step is not None

    def _is_inspected(self, hang: "SuspectedHang | Hang", *, restarts: bool) -> bool:
        """Return whether it is known what the ranks do.

        That takes at most 10 s, and 70 s if the hang is only reported.
        """
        from holdfast.adapters.host.hang_inspection import HangInspector, Suspicion  # noqa: PLC0415 - after a hang only

        if self._look is None:
            return True
        self._inspector = self._inspector or HangInspector(self._clock.now)
        found = self._inspector.inspect(
            Suspicion(
                job=self._job,
                attempt=self._attempt,
                since=hang.since,
                evidence=hang.evidence,
                look=self._look,
                file=self._file,
                node="",
                restarts=restarts,
            )
        )
        if found is not None:
            where = f"; evidence: {self._file}" if self._file.is_file() else ""
            self._seen = f"; {found.text}{where}" if found.text else ""
        return found is not None

    def notice(self) -> str:
        """Return what a person has to know of a hang that does not stop the step, once."""
        if self._hang is None or self._hang == self._reported:
            return ""
        self._reported = self._hang
        if self._restarts(self._hang):
            return ""
        if self._hang.step is None:
            return f"{self.text}; {UNKNOWN_STEPS}"
        return f"{self.text}; it is restarted only with {TIMEOUT_VARIABLE}"

    def progress(self, attempt: int) -> ReportedProgress | None:
        """Return the last step and the step rate from time to time; None in between."""
        now, rate = self._clock.now(), step_rate(self._steps)
        if now < self._due_at or rate is None:
            return None
        self._due_at = now + _REPORTS
        return ReportedProgress(attempt=attempt, step=self._steps[-1][1], steps_per_second=rate)

    def report(self, attempt: int) -> ReportedHang | None:
        """Return what the controller has to know; None if the step does not seem to hang."""
        if self._hang is None:
            return None
        return ReportedHang(attempt=attempt, step=self._hang.step, since=self._hang.since)


def evidence_file(environment: Mapping[str, str]) -> Path:
    """Return the file for the evidence of a hang: in the job's directory, unless it is set."""
    name = EVIDENCE_NAME.format(environment.get("SLURM_JOB_ID", "0"))
    given = environment.get(EVIDENCE_VARIABLE)
    return Path(given) if given else Path.cwd() / name
