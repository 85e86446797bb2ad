"""Hangs, steps and losses of one attempt of a job, from the logs of its pods."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from holdfast.adapters.host.job_log_rules import JobLogRules
from holdfast.adapters.host.pattern_matcher import PatternMatcher
from holdfast.decisions.hangs import Hang
from holdfast.decisions.log_rules import JobLogRule
from holdfast.decisions.logged_steps import LoggedSteps, after_lines
from holdfast.decisions.loss_faults import LossLimits
from holdfast.decisions.notice_lines import LoggedNotices
from holdfast.decisions.notice_lines import after_lines as after_notice_lines
from holdfast.decisions.set_aside_records import after_moved_lines
from holdfast.decisions.step_progress import (
    StepProgress,
    SuspectedHang,
    after_look,
    suspected_hang,
    suspicious_at,
)
from holdfast.decisions.step_times import StallLimits
from holdfast.kit.rejections import Rejection
from holdfast.model.set_aside import SetAside
from holdfast.ports.clock import Clock

_STALLS: Final = StallLimits()
"""When a job seems to hang. It is only reported, so that there is nothing to set."""


class LogMonitor:
    """Takes lines from any thread; see ``JobLogRules`` for log rules.

    Times are those of arrival by our clock, since clocks of nodes may be wrong.
    """

    def __init__(
        self,
        matcher: PatternMatcher,
        clock: Clock,
        rules: Sequence[JobLogRule],
        started_at: datetime,
        limits: LossLimits,
        progress: StepProgress = StepProgress(),  # noqa: B008 - it is immutable
    ) -> None:
        """Validate the patterns of the rules.

        Args:
            matcher: matches lines with patterns.
            clock: gives the arrival times of lines.
            rules: log rules of the job.
            started_at: time from which all ranks ran.
            limits: when a loss is a fault.
            progress: what was learned in earlier attempts of the job.

        Raises:
            BackendError: the patterns could not be validated.

        """
        self._rules = JobLogRules(matcher, rules)
        self._rules.validate()
        self._clock = clock
        self._started_at = started_at
        self._lock = threading.Lock()
        self._limits = limits
        self._steps = LoggedSteps()
        self._progress = progress
        self._notices = LoggedNotices()
        self._moved: tuple[SetAside, ...] = ()

    @property
    def rejected(self) -> tuple[Rejection, ...]:
        """Rules whose patterns are invalid."""
        return self._rules.rejected

    @property
    def steps(self) -> LoggedSteps:
        """Steps and losses in known forms of log lines."""
        return self._steps

    @property
    def notices(self) -> LoggedNotices:
        """What Holdfast's programs report in the containers; of a hang, until the next step."""
        return self._notices

    @property
    def moved(self) -> tuple[SetAside, ...]:
        """Checkpoints that ``holdfast checkpoint guard`` has moved in the containers."""
        return self._moved

    @property
    def progress(self) -> StepProgress:
        """What is known of the steps of this attempt and of earlier ones."""
        return self._progress

    @property
    def suspicious_at(self) -> datetime | None:
        """Time from which the job seems to hang without a new step; None if that is unknown."""
        return suspicious_at(self._progress, _STALLS)

    @property
    def due(self) -> datetime | None:
        """Time from which silence may be a hang; None if no rule has a timeout."""
        return self._rules.due(self._started_at)

    def take(self, rank: int, lines: Sequence[str], *, node: str = "") -> None:
        """Evaluate lines of a rank on ``node``.

        Raises:
            BackendError: matching failed, as for ``JobLogRules.take``.

        """
        now = self._clock.now()
        where = f"node rank {rank} on {node}" if node else f"node rank {rank}"
        self._rules.take(rank, lines, at=now, where=where)
        with self._lock:
            before = self._steps.last
            self._steps = after_lines(self._steps, rank, lines, self._limits, where=where)
            if self._steps.last != before:
                self._notices = replace(self._notices, hang="")
            self._notices = after_notice_lines(self._notices, lines)
            self._moved = after_moved_lines(self._moved, lines)
            if lines:
                self._look(now)

    def suspected(self, known_until: datetime | None) -> SuspectedHang | None:
        """Return why the job seems to hang by what was learned of its steps; None if it does not.

        Args:
            known_until: all lines up to this time were taken; None if nothing is known.

        """
        with self._lock:
            if known_until is not None:
                self._look(known_until)
            return suspected_hang(self._progress, _STALLS, known_until)

    def _look(self, now: datetime) -> None:
        self._progress = after_look(
            self._progress, began_at=self._started_at, step=self._steps.last, now=now
        )

    def hang(self, known_until: datetime | None) -> Hang | None:
        """First hang that a rule finds; None if there is none. See ``first_hang``."""
        return self._rules.hang(self._started_at, known_until)
