"""Steps and losses that one attempt has reported: in the progress file, else in its logs."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from holdfast.adapters.host.attempt_logs import CHUNK_BYTES, AttemptLogs
from holdfast.adapters.host.job_log_rules import JobLogRules
from holdfast.adapters.host.progress_file import Progress, ReportReader, read_progress
from holdfast.adapters.local.layout import RunDir
from holdfast.decisions.hangs import Hang
from holdfast.decisions.logged_steps import LoggedSteps, after_lines
from holdfast.decisions.loss_faults import LossHistory, LossLimits, after_report, worse_fault
from holdfast.decisions.step_rate import KnownSteps, step_rate, with_step
from holdfast.kit.appended_lines import AppendedLines, file_size
from holdfast.kit.files import write_atomically
from holdfast.model.jobs import LossFault
from holdfast.ports.clock import Clock

_RATE_PERIOD: Final = timedelta(seconds=5)
"""Time between two writes of the step rate."""


class AttemptReports:
    """Reads each report of an attempt once.

    Args:
        own: directory of the job.
        attempt: number of the attempt.
        nodes: nodes of the attempt, by node rank.
        limits: when a loss is a fault.
        rules: log rules of the job.
        clock: clock of the hangs. Until then, times are of the one that nobody sets.
        continues_logs: whether the logs began with an earlier attempt, so that what they have now
            is not of this one.

    """

    def __init__(
        self,
        own: RunDir,
        attempt: int,
        nodes: Sequence[str],
        limits: LossLimits,
        rules: JobLogRules,
        clock: Clock,
        *,
        continues_logs: bool = False,
    ) -> None:
        self.attempt = attempt
        self.fault: LossFault | None = None
        """First loss that is not finite, or else the first spike."""

        self._clock = clock
        self._zero = clock.now() - clock.elapsed()
        self._runs_since: datetime | None = None
        self._rules, self._behind = rules, ""
        self._losses = LossHistory()
        self._limits = limits
        self._path = own.progress(attempt)
        self._file = ReportReader(self._path)
        self._where = [f"node rank {rank} on {node}" for rank, node in enumerate(nodes)]
        logs = [own.log(attempt, rank) for rank in range(len(nodes))]
        self._logs = AttemptLogs(
            [
                AppendedLines(
                    log, offset=file_size(log) if continues_logs else 0, chunk=CHUNK_BYTES
                )
                for log in logs
            ]
        )
        self._logged = LoggedSteps()
        self._rate_file = own.step_rate(attempt)
        self._steps: KnownSteps = ()
        self._rate_at: datetime | None = None

    def read(self) -> Progress:
        """Return the progress so far."""
        now = self._now()
        for report in self._file.read():
            self._losses = after_report(self._losses, report, self._limits)
        progress = read_progress(self._path)
        is_logged = progress.last is None
        self._read_logs(now, is_logged=is_logged)
        if is_logged:
            progress = Progress(self._logged.first, self._logged.last)
        self.fault = worse_fault(self._losses.fault, self._logged.fault)
        if progress.last is not None:
            self._note(now, progress.last)
        return progress

    def hang(self) -> Hang | None:
        """Return the hang that the log rules show while all ranks run; None if there is none."""
        self._runs_since = self._runs_since or self._now()
        found = self._rules.hang(self._runs_since, self._logs.known_until)
        if found is None:
            return None
        set_by = self._clock.now() - self._now()
        return replace(found, since=found.since + set_by, at=found.at + set_by)

    def _now(self) -> datetime:
        return self._zero + self._clock.elapsed()

    @property
    def rejected(self) -> str:
        """Return which log rules are not evaluated, and why; empty if all are."""
        return "; ".join(filter(None, (*map(str, self._rules.rejected), self._behind)))

    def _read_logs(self, now: datetime, *, is_logged: bool) -> None:
        """Read the logs for the log rules; if the job logs its steps, for these, too."""
        if not (is_logged or self._rules.are_given):
            return
        for rank, lines in self._logs.read(now):
            where = self._where[rank]
            if is_logged:
                self._logged = after_lines(self._logged, rank, lines, self._limits, where=where)
            self._rules.take_or_end(rank, lines, at=now, where=where)
        self._behind = self._logs.behind(now) if self._rules.are_given else ""

    def _note(self, now: datetime, step: int) -> None:
        """Store the step rate from time to time, for other processes."""
        self._steps = with_step(self._steps, now, step)
        rate = step_rate(self._steps)
        if rate is None or (self._rate_at is not None and now < self._rate_at + _RATE_PERIOD):
            return
        self._rate_at = now
        with suppress(OSError):  # a full disk loses the rate, nothing else
            write_atomically(self._rate_file, f"{rate:.6g}\n")
