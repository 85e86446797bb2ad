"""Matches log rules with the logs of the ranks of one node."""

import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.decisions.launch_events import LogsRead
from holdfast.kit.steady_clock import SteadyClock

if TYPE_CHECKING:
    from holdfast.adapters.host.job_log_rules import JobLogRules
    from holdfast.adapters.host.pattern_matcher import PatternMatcher
    from holdfast.decisions.log_rules import JobLogRule, RuleState

_INTERVAL_S: Final = 1.0
_BEHIND_S: Final = 0.2
"""Time between two reads, and between two while there is more to read."""

_REPORT_S: Final = 5.0
"""Time between two reports to a coordinator of several nodes. A line that proves a hang or ends a
rule is reported at once."""

_LAST_S: Final = 10.0
"""Maximum time to read the logs to their ends once the ranks have ended."""

_JOIN_S: Final = 1.0
"""Maximum time to wait for a thread to end, which may abort the process if it runs at its exit."""


class LogRuleWatch:
    """Log rules of the rounds of a job, for the ranks of this node.

    A thread reads the logs and waits for the matches: patterns that take long must not delay the
    renewal of leases.

    Args:
        rules: log rules of the job.
        has_others: whether the job may have launchers on other nodes.

    """

    def __init__(self, rules: "Sequence[JobLogRule]", *, has_others: bool) -> None:
        self._given = tuple(rules)
        self._has_others = has_others
        self._digest = ""
        self._matcher: PatternMatcher | None = None
        self._reader: LogReader | None = None
        """None unless a round is watched."""

        self._ended: list[LogReader] = []
        """Readers of earlier rounds that may still wait for a match."""

        self._check_at = self._report_at = self._finish_by = 0.0
        self._settled = 0
        """Reported rules that found a hang or have ended."""

        self._warned: set[str] = set()

    def begin(self, logs: Mapping[int, Sequence[Path]]) -> None:
        """Watch a new round, whose ranks have not started: what its logs have is not of theirs.

        Args:
            logs: logs by rank.

        """
        self.end()
        if not self._given:
            return
        from holdfast.adapters.host.job_log_rules import JobLogRules  # noqa: PLC0415 - with rules only
        from holdfast.adapters.host.pattern_matcher import PatternMatcher  # noqa: PLC0415 - with rules only
        from holdfast.decisions.launch_log_rules import digest_of  # noqa: PLC0415 - with rules only

        self._matcher = self._matcher or PatternMatcher()
        self._digest = self._digest or digest_of(self._given)
        self._settled, self._finish_by, self._warned = 0, 0.0, set()
        try:
            self._reader = LogReader(JobLogRules(self._matcher, self._given), logs)
        except RuntimeError as error:
            self._warn([f"no log rule applies: {error}; raise the limit of processes"])
        self._check_at = time.monotonic() + _INTERVAL_S
        # Launchers begin a round at the same time: not all of them report at the same time.
        spread = os.urandom(1)[0] / 256 * _REPORT_S
        self._report_at = self._check_at + spread * self._has_others

    def finish(self) -> None:
        """Read the logs of ranks that have ended to their ends, for the launchers of other nodes.

        Without that, a last line that ends a rule would be missing there, while their ranks run on.
        """
        if self._reader is None or not self._has_others:
            self.end()
        elif not self._finish_by:
            self._finish_by = time.monotonic() + _LAST_S
            self._reader.finish()

    def end(self) -> None:
        """Stop watching."""
        if self._reader is not None:
            self._reader.stop()
            self._ended = [one for one in (*self._ended, self._reader) if one.is_alive()]
            self._reader = None

    def close(self) -> None:
        """Stop the process that matches lines, and wait for the threads to end."""
        self.end()
        if self._matcher is not None:
            self._matcher.close()
        for reader in self._ended:
            reader.join(_JOIN_S)

    @property
    def pids(self) -> set[int]:
        """Process that matches lines, if there is one."""
        return set() if self._matcher is None else self._matcher.pids

    def next_call(self) -> float | None:
        """Return the monotonic time of the next call of ``report``; None if nothing is watched."""
        return None if self._reader is None else self._check_at

    def report(self, launcher: str, number: int) -> LogsRead | None:
        """Return what the logs show by now; None if it need not be reported yet.

        Args:
            launcher: name of the launcher.
            number: number of the round.

        """
        reader, now = self._reader, time.monotonic()
        if reader is None or now < self._check_at:
            return None
        from holdfast.decisions.launch_log_rules import age_s, report_of  # noqa: PLC0415 - with rules only

        self._check_at = now + (_BEHIND_S if self._finish_by else _INTERVAL_S)
        shown, at = reader.shown, reader.clock.now()
        self._warn(shown.problems)
        settled = sum(one.is_over or one.hang is not None for one in shown.states.values())
        is_due = shown.is_complete or now >= self._report_at or settled != self._settled
        self._settled = settled
        if shown.is_complete or 0.0 < self._finish_by <= now:
            self.end()
        if not is_due:
            return None
        self._report_at = now + _REPORT_S * self._has_others
        return LogsRead(
            launcher=launcher,
            round=number,
            digest=self._digest,
            rules=tuple(report_of(shown.states.get(rule), at) for rule in self._given),
            known_s=age_s(shown.known_until, at),
            is_complete=shown.is_complete,
        )

    def _warn(self, problems: Sequence[str]) -> None:
        for text in problems:
            if text not in self._warned:
                sys.stderr.write(f"holdfast: JobUnwatched: {text}\n")
        self._warned |= {*problems}


class _Shown(NamedTuple):
    """What the logs have shown by now."""

    states: "Mapping[JobLogRule, RuleState]"
    known_until: datetime | None = None
    """All lines until then are in the states; None if nothing is known."""

    is_complete: bool = False
    """Whether all lines of the ranks were read after they had ended."""

    problems: tuple[str, ...] = ()
    """Which rules are ignored, and why."""


class LogReader:
    """Reads the logs of one round in a thread, until ``stop``.

    Args:
        rules: get the lines.
        logs: logs by rank, as they are before the ranks start.

    Raises:
        RuntimeError: no thread can be started.

    """

    def __init__(self, rules: "JobLogRules", logs: Mapping[int, Sequence[Path]]) -> None:
        from holdfast.adapters.host.attempt_logs import CHUNK_BYTES, AttemptLogs  # noqa: PLC0415 - with rules only
        from holdfast.kit.appended_lines import AppendedLines, file_size  # noqa: PLC0415 - with rules only

        self._rules = rules
        self.shown = _Shown(rules.states())
        self._ranks = [rank for rank, paths in logs.items() for _ in paths]
        paths = [path for paths in logs.values() for path in paths]
        self._logs = AttemptLogs(
            [AppendedLines(path, offset=file_size(path), chunk=CHUNK_BYTES) for path in paths]
        )
        self.clock = SteadyClock()
        self._has_finished = False
        self._stopped, self._wake = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._read_all, name="log-rules", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Read the logs to their ends: the ranks have ended."""
        self._has_finished = True
        self._wake.set()

    def stop(self) -> None:
        """Request the thread to end."""
        self._stopped.set()
        self._wake.set()

    def is_alive(self) -> bool:
        """Return whether the thread runs."""
        return self._thread.is_alive()

    def join(self, limit_s: float) -> None:
        """Wait until the thread has ended."""
        self._thread.join(limit_s)

    def _read_all(self) -> None:
        while not (self._stopped.is_set() or self.shown.is_complete):
            self._wake.clear()
            has_finished, now = self._has_finished, self.clock.now()
            for index, lines in self._logs.read(now, is_last=has_finished):
                if self._stopped.is_set():
                    return
                rank = self._ranks[index]
                # Matching takes long: the time of a line is that of its file's read, or later.
                self._rules.take_or_end(rank, lines, at=self.clock.now(), where=f"rank {rank}")
                self._show(is_complete=False)
            is_read = self._logs.known_until == now
            self._show(is_complete=has_finished and is_read)
            if not self.shown.is_complete:
                self._wake.wait(_INTERVAL_S if is_read else _BEHIND_S)

    def _show(self, *, is_complete: bool) -> None:
        problems = tuple(map(str, self._rules.rejected))
        known = self._logs.known_until
        self.shown = _Shown(self._rules.states(), known, is_complete, problems)
