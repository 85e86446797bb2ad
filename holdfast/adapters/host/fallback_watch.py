"""Reads signals of progress of a job that reports no steps: checkpoints and activity.

What may block is read by other processes: checkpoints, because their storage may not respond, and
accelerators, because their driver may not.
"""

import sys
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from holdfast.adapters.host.rank_activity import read_activity
from holdfast.decisions.fallback_signals import (
    FallbackSignals,
    needs_accelerators,
    next_attempt,
    suspected_silence,
)
from holdfast.decisions.inspection_tries import deadline_of
from holdfast.decisions.job_activity import (
    AcceleratorUse,
    after_accelerators,
    after_reading,
    rebased,
)
from holdfast.decisions.save_times import NO_SAVE, after_survey
from holdfast.decisions.step_progress import SuspectedHang
from holdfast.decisions.step_times import StallLimits
from holdfast.kit.printed_value import PrintedValue

_READINGS_PER_LIMIT: Final = 10
_LONGEST_PERIOD: Final = timedelta(seconds=30)
"""Time between two readings of the ranks; each reads a few files of each process."""

_SURVEYS_PER_FLOOR: Final = 3
_LONGEST_SURVEY_PERIOD: Final = timedelta(minutes=1)
"""Time between two looks at the checkpoints; each starts a process that takes 0.1 s of CPU time."""

_SURVEY_S: Final = 60.0
_ACCELERATORS_S: Final = 30.0
_UNREAD: Final = -1.0


class FallbackWatch:
    """Checkpoints and activity of the attempts of a job.

    Args:
        limits: settings.
        devices: value of CUDA_VISIBLE_DEVICES; empty: all GPUs.

    """

    def __init__(self, limits: StallLimits, devices: str = "") -> None:
        self.signals = FallbackSignals()
        self._limits, self._devices = limits, devices
        self._folder = ""
        self._survey_at = self._read_at = NO_SAVE
        self._inspected: datetime | None = None
        """Start of the suspected hang for which the job was last inspected."""

        self._inspected_until: datetime | None = None
        self._survey: PrintedValue[float] | None = None
        self._accelerators: PrintedValue[AcceleratorUse] | None = None

    def begin(self, checkpoints: str) -> None:
        """Begin the next attempt.

        Args:
            checkpoints: its directory; empty if unknown.

        """
        self.end()
        self.signals = next_attempt(self.signals)
        self._folder, self._inspected_until = checkpoints, None
        self._survey_at = self._read_at = NO_SAVE

    @property
    def pids(self) -> list[int]:
        """Processes that read something now."""
        return [one.pid for one in (self._survey, self._accelerators) if one is not None]

    def look(
        self, now: datetime, ranks: Callable[[], Collection[int]] | None
    ) -> SuspectedHang | None:
        """Read what is due. Returns why the job seems to hang; None if it does not.

        Args:
            now: current time.
            ranks: returns the process of each rank; None if not all ranks of the job are here.

        """
        if self._folder:
            self._look_at_checkpoints(now)
        if ranks is not None and self._limits.silence:
            self._look_at_ranks(now, ranks)
        found = suspected_silence(self.signals, now, self._limits)
        if found is not None and self._inspected != found.since:
            self._inspected = found.since
            self._inspected_until = now + deadline_of(restarts=False)
        return found

    def end(self) -> None:
        """End what is being read."""
        for one in (self._survey, self._accelerators):
            if one is not None:
                one.close()
        self._survey = self._accelerators = None

    def _look_at_checkpoints(self, now: datetime) -> None:
        floor = self._limits.floor
        if self._survey is None and now >= self._survey_at:
            self._survey_at = now + min(_LONGEST_SURVEY_PERIOD, floor / _SURVEYS_PER_FLOOR)
            module = "holdfast.adapters.checkpoints.last_save"
            command = (sys.executable, "-m", module, self._folder)
            self._survey = PrintedValue(float, command, limit_s=_SURVEY_S)
        if self._survey is None or (seconds := self._survey.value(_UNREAD)) is None:
            return
        self._survey.close()
        self._survey = None
        if seconds >= 0:
            newest = datetime.fromtimestamp(seconds, UTC) if seconds else NO_SAVE
            saves = after_survey(self.signals.saves, newest, now, floor)
            self.signals = replace(self.signals, saves=saves)

    def _look_at_ranks(self, now: datetime, ranks: Callable[[], Collection[int]]) -> None:
        if self._accelerators is not None:
            use = self._accelerators.value(AcceleratorUse.UNKNOWN)
            if use is not None:
                self._accelerators.close()
                self._accelerators = None
                activity = after_accelerators(self.signals.activity, use, now)
                self.signals = replace(self.signals, activity=activity)
            return
        if needs_accelerators(self.signals, now, self._limits):
            module = "holdfast.adapters.host.accelerator_activity"
            command = (sys.executable, "-m", module, f"--devices={self._devices}")
            self._accelerators = PrintedValue(AcceleratorUse, command, limit_s=_ACCELERATORS_S)
        elif now >= self._read_at and not self._is_inspected(now):
            period = min(_LONGEST_PERIOD, self._limits.silence / _READINGS_PER_LIMIT)
            self._read_at = now + period
            self._read(now, ranks)

    def _is_inspected(self, now: datetime) -> bool:
        """Return whether ranks may be busy with an inspection: they may write their own stacks."""
        return self._inspected_until is not None and now < self._inspected_until

    def _read(self, now: datetime, ranks: Callable[[], Collection[int]]) -> None:
        (reading, traffic), before = read_activity(ranks()), self.signals.activity
        if self._inspected_until is not None:
            self._inspected_until = None
            activity = rebased(before, reading, now, traffic)
        else:
            activity = after_reading(before, reading, now, self._limits.silence, traffic)
        self.signals = replace(self.signals, activity=activity)
