"""Losses and hangs of the training in a supervised job step, and what follows from them.

Training steps and losses are read in the progress file and the output of the job step.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.adapters.host.attempt_logs import CHUNK_BYTES, AttemptLogs
from holdfast.adapters.host.progress_file import ReportReader
from holdfast.adapters.slurm.jobs.step_hangs import StepHangs
from holdfast.adapters.slurm.jobs.step_output import output_files
from holdfast.adapters.slurm.jobs.step_rules import StepRules
from holdfast.decisions.logged_steps import LoggedSteps, after_lines
from holdfast.decisions.loss_faults import (
    LossHistory,
    LossLimits,
    after_report,
    loss_notice,
    loss_stop,
    skipped_steps,
    worse_fault,
)
from holdfast.decisions.loss_settings import VARIABLES, bad_loss, parse_loss_limits
from holdfast.decisions.notice_lines import LoggedNotices, slow_host
from holdfast.decisions.notice_lines import after_lines as after_notice_lines
from holdfast.decisions.step_restart import ApplicationEnd
from holdfast.kit.appended_lines import AppendedLines, file_size
from holdfast.kit.steady_clock import SteadyClock
from holdfast.model.jobs import (
    BAD_LOSS_VARIABLE,
    PROGRESS_VARIABLE,
    SKIP_STEPS_VARIABLE,
    AttemptRecord,
    Failure,
    FailureKind,
    LossAction,
    LossFault,
)
from holdfast.model.names import Reason

if TYPE_CHECKING:
    from holdfast.decisions.flight_recorder import RankFindings


class TrainingWatch:
    """Losses and progress of the training in the attempts of one job step.

    The output is read where standard output and standard error of this process, which are those of
    srun, are regular files, as in a batch script.

    Args:
        environment: of the step; has the settings and the progress file.
        srun: command line of the step.
        look: see ``StepHangs``.
        checkpoints: see ``StepHangs``.

    """

    def __init__(
        self,
        environment: Mapping[str, str],
        srun: Sequence[str],
        look: "Callable[[timedelta], RankFindings] | None" = None,
        checkpoints: Callable[[], Path | None] = lambda: None,
    ) -> None:
        limits, problems = parse_loss_limits(environment, VARIABLES)
        self.hangs = StepHangs(environment, look, checkpoints)
        self._rules = StepRules(environment, srun)
        self.problems = [*map(str, problems), *self.hangs.problems, *self._rules.problems]
        """Settings that are ignored, and why."""

        self.fault: LossFault | None = None
        """First loss of the attempt that is not finite, or else the first spike."""

        self._limits = limits or LossLimits()
        self._progress = environment.get(PROGRESS_VARIABLE, "")
        self._attempts: tuple[AttemptRecord, ...] = ()
        self._failure: Failure | None = None
        self._hang, self._reason = "", ""
        self._noticed: set[str] = set()
        self._reported: int | None = None
        self._clock = SteadyClock()
        self._begun_at = self._clock.now()
        self._history, self._steps = LossHistory(), LoggedSteps()
        self._notices = LoggedNotices()
        self._reports: ReportReader | None = None
        self._logs, self._behind = AttemptLogs(()), ""

    @property
    def text(self) -> str:
        """Why the step is stopped, for people to read; empty if it is not."""
        if self._hang:
            return f"{self._reason}: {self._hang}"
        return "" if self.fault is None else f"{self.fault.reason}: {self.fault.evidence}"

    @property
    def restarts(self) -> int:
        """Number of restarts for the loss or a hang so far."""
        return len(self._attempts)

    def begin(self) -> dict[str, str]:
        """Begin the next attempt. Returns the variables with the restart reason, for the ranks.

        Lines that the files already contain belong to earlier attempts.
        """
        failure = self._failure
        self._start()
        if not self._attempts:
            return {}
        return {
            SKIP_STEPS_VARIABLE: skipped_steps(self._attempts),
            BAD_LOSS_VARIABLE: bad_loss(failure),
        }

    def read(self) -> bool:
        """Read what is new. Returns whether a loss or a hang requires that the step is stopped."""
        for report in self._reports.read() if self._reports is not None else ():
            self._history = after_report(self._history, report, self._limits)
            self._reported = report.step
        self._read_output()
        self.fault = worse_fault(self._history.fault, self._steps.fault)
        steps = [one for one in (self._reported, self._steps.last) if one is not None]
        rule = self._rules.hang(self._begun_at, self._logs.known_until)
        is_hung = self.hangs.look(max(steps, default=None), rule)
        if is_hung:
            self._hang, self._reason = self.hangs.text, self.hangs.reason
        return is_hung or (self.fault is not None and self.fault.action is not LossAction.ASK)

    def _read_output(self) -> None:
        now = self._clock.now()
        for number, lines in self._logs.read(now):
            self._steps = after_lines(self._steps, number, lines, self._limits)
            self._notices = after_notice_lines(self._notices, lines)
            self._rules.take(number, lines, now)
        self._behind = self._logs.behind(now) if self._rules.are_given else ""

    def straggler(self, nodes: Sequence[str]) -> str:
        """Return which of ``nodes`` ``holdfast launch`` calls slow in the output; may be empty."""
        host = slow_host(self._notices.straggler).partition(".")[0]
        found = [node for node in nodes if host and node.partition(".")[0] == host]
        return found[0] if len(found) == 1 else ""

    def notices(self) -> Iterator[str]:
        """Yield what a person has to know of what does not stop the step, once each."""
        unwatched = "; ".join(filter(None, (self._rules.rejected, self._behind)))
        texts = (("JobLossFault", loss_notice(self.fault)), ("JobUnwatched", unwatched))
        for name, text in texts:
            if text and text not in self._noticed:
                self._noticed.add(text)
                yield f"{name}: {text}"
        if text := self.hangs.notice():
            yield f"JobHangSuspected: {text}"

    def ended(self, *, is_stopped: bool) -> Failure | None:
        """Return the failure of an attempt that has ended; None for another reason.

        Args:
            is_stopped: whether the step was stopped for its loss, or a hang. One that failed by
                itself counts if its loss was not finite: many jobs check that, and end.

        """
        fault = self.fault
        has_acted = fault is not None and fault.action is not LossAction.ASK
        if self._failure is None and is_stopped and not has_acted:
            self._failure = Failure(
                kind=FailureKind.APPLICATION,
                reason=self._reason,
                at=self._clock.now(),
                evidence=self._hang,
            )
        if self._failure is not None or fault is None or fault.action is LossAction.ASK:
            return self._failure
        if is_stopped or fault.reason == Reason.LOSS_NOT_FINITE:
            self._failure = Failure(
                kind=FailureKind.APPLICATION,
                reason=fault.reason,
                at=self._clock.now(),
                evidence=fault.evidence,
                step=fault.step,
                loss_action=fault.action,
            )
        return self._failure

    def end_of(self, nodes: tuple[str, ...]) -> ApplicationEnd | None:
        """Return what a decision about a restart on ``nodes`` has to know of that failure."""
        if self._failure is None:
            return None
        return ApplicationEnd(
            why=f"{self._failure.reason}: {self._failure.evidence}",
            obstacle=loss_stop(self._failure, self._attempts, nodes),
            restarts=self.restarts,
        )

    def restart(self, nodes: tuple[str, ...], *, is_cause: bool) -> AttemptRecord | None:
        """Return how the attempt on ``nodes`` ended that is restarted; None without a failure.

        ``is_cause`` is false if a node had a fault: no step is skipped then, and no restart for the
        loss is counted.
        """
        if self._failure is None:
            return None
        one = AttemptRecord(
            attempt=self.restarts + 1,
            placement=nodes,
            started_at=self._begun_at,
            stopped_at=self._clock.now(),
            first_step=self._steps.first,
            last_step=self._steps.last,
            failure=self._failure,
        )
        if is_cause:
            self._attempts = (*self._attempts, one)
        return one

    def _start(self) -> None:
        self.fault = self._failure = None
        self._hang, self._reason = "", ""
        self._reported, self._noticed = None, set()
        self._begun_at = self._clock.now()
        self._history, self._steps = LossHistory(), LoggedSteps()
        self._notices = LoggedNotices()
        self.hangs.begin()
        self._rules.begin()
        if self._progress:
            path = Path(self._progress)
            self._reports = ReportReader(path, offset=file_size(path))
        files = [
            AppendedLines(path, offset=file_size(path), follow_links=True, chunk=CHUNK_BYTES)
            for path in output_files()
        ]
        self._logs, self._behind = AttemptLogs(files), ""
