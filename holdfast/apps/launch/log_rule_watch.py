"""Matches log rules with the logs of the ranks of one node."""

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.decisions.launch_events import LogsRead

if TYPE_CHECKING:
    from holdfast.adapters.host.job_log_rules import JobLogRules
    from holdfast.adapters.host.pattern_matcher import PatternMatcher
    from holdfast.decisions.log_rules import JobLogRule

_INTERVAL_S: Final = 1.0
_REPORT_S: Final = 5.0
"""Time between two reports to a coordinator of several nodes. A line that proves a hang or ends a
rule is reported at once."""

_POLL_S: Final = 0.1
_RETRY_S: Final = 0.05
_LAST_S: Final = 10.0
"""Maximum time to read the logs to their ends once the ranks have ended."""


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
        self._reader: _LogReader | None = None
        """None unless a round is watched."""

        self._check_at = self._report_at = self._finish_by = 0.0
        self._settled = 0
        """Reported rules that found a hang or have ended."""

        self._warned: set[str] = set()

    def begin(self, logs: Mapping[int, Sequence[Path]]) -> None:
        """Watch a new round, whose ranks have not started: what its logs have is not of theirs.

        Args:
            logs: logs by rank.

        """
        if not self._given:
            return
        from holdfast.adapters.host.job_log_rules import JobLogRules  # noqa: PLC0415 - with rules only
        from holdfast.adapters.host.pattern_matcher import PatternMatcher  # noqa: PLC0415 - with rules only
        from holdfast.decisions.launch_log_rules import digest_of  # noqa: PLC0415 - with rules only

        self._matcher = self._matcher or PatternMatcher()
        self._digest = self._digest or digest_of(self._given)
        self._reader = _LogReader(JobLogRules(self._matcher, self._given), logs)
        self._settled, self._finish_by, self._warned = 0, 0.0, set()
        self._check_at = time.monotonic() + _INTERVAL_S
        # Launchers begin a round at the same time: not all of them report at the same time.
        spread = os.urandom(1)[0] / 256 * _REPORT_S
        self._report_at = self._check_at + spread * self._has_others

    def end(self) -> None:
        """Stop watching."""
        if self._reader is not None:
            self._reader.stop()
            self._reader = None

    def close(self) -> None:
        """End the process that matches lines."""
        self.end()
        for pid in self.pids:  # a thread may wait for it
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._matcher is not None:
            self._matcher.close()

    @property
    def pids(self) -> set[int]:
        """Process that matches lines, if there is one."""
        return set() if self._matcher is None else self._matcher.pids

    def next_call(self) -> float | None:
        """Return the monotonic time of the next call of ``report``; None if nothing is watched."""
        if self._reader is None:
            return None
        return time.monotonic() + _POLL_S if self._finish_by else self._check_at

    def is_finishing(self) -> bool:
        """Return whether a last report is awaited, after all ranks have ended.

        Without it, a last line that ends a rule would be missing on the other nodes, whose ranks
        may run on.
        """
        if self._reader is None or not self._has_others:
            return False
        if not self._finish_by:
            self._finish_by = time.monotonic() + _LAST_S
            self._reader.finish()
        return time.monotonic() < self._finish_by

    def report(self, launcher: str, number: int) -> LogsRead | None:
        """Return what the logs show by now; None if it need not be reported yet.

        Args:
            launcher: name of the launcher.
            number: number of the round.

        """
        reader, now = self._reader, time.monotonic()
        if reader is None or (now < self._check_at and not self._finish_by):
            return None
        from holdfast.decisions.launch_log_rules import age_s, report_of  # noqa: PLC0415 - with rules only

        self._check_at = now + _INTERVAL_S
        is_complete, known, at = reader.is_complete, reader.known_until, reader.now()
        states = reader.rules.states()  # after ``known``: they include all lines until then
        self._warn(reader.problems)
        settled = sum(one.is_over or one.hang is not None for one in states.values())
        if not is_complete and now < self._report_at and settled == self._settled:
            return None
        self._report_at, self._settled = now + _REPORT_S * self._has_others, settled
        if is_complete:
            self.end()
        return LogsRead(
            launcher=launcher,
            round=number,
            digest=self._digest,
            rules=tuple(report_of(states.get(rule), at) for rule in self._given),
            known_s=age_s(known, at),
            is_complete=is_complete,
        )

    def _warn(self, problems: Sequence[str]) -> None:
        for text in problems:
            if text not in self._warned:
                sys.stderr.write(f"holdfast: JobUnwatched: {text}\n")
        self._warned |= {*problems}


class _LogReader:
    """Reads the logs of one round in a thread, until ``stop``.

    Args:
        rules: get the lines.
        logs: logs by rank, as they are before the ranks start.

    """

    def __init__(self, rules: "JobLogRules", logs: Mapping[int, Sequence[Path]]) -> None:
        from holdfast.adapters.host.attempt_logs import CHUNK_BYTES, AttemptLogs  # noqa: PLC0415 - with rules only
        from holdfast.kit.appended_lines import AppendedLines, file_size  # noqa: PLC0415 - with rules only

        self.rules = rules
        self.is_complete = False
        """Whether all lines of the ranks were read after they had ended."""

        self.problems: tuple[str, ...] = ()
        """Why missing lines are no evidence, and which rules are ignored."""

        self._ranks = [rank for rank, paths in logs.items() for _ in paths]
        paths = [path for paths in logs.values() for path in paths]
        self._logs = AttemptLogs(
            [AppendedLines(path, offset=file_size(path), chunk=CHUNK_BYTES) for path in paths]
        )
        self._started, self._clock = datetime.now(UTC), time.monotonic()
        self._has_finished = self._has_stopped = False
        self._wake = threading.Event()
        threading.Thread(target=self._read_all, name="log-rules", daemon=True).start()

    @property
    def known_until(self) -> datetime | None:
        """All lines until then were evaluated; None if nothing is known."""
        return self._logs.known_until

    def now(self) -> datetime:
        """Return the present time, which never jumps."""
        return self._started + timedelta(seconds=time.monotonic() - self._clock)

    def finish(self) -> None:
        """The ranks have ended: read what is left."""
        self._has_finished = True
        self._wake.set()

    def stop(self) -> None:
        """Read no more."""
        self._has_stopped = True
        self._wake.set()

    def _read_all(self) -> None:
        while not (self._has_stopped or self.is_complete):
            has_finished, now = self._has_finished, self.now()
            for index, lines in self._logs.read(now, is_last=has_finished):
                rank = self._ranks[index]
                self.rules.take_or_end(rank, lines, at=now, where=f"rank {rank}")
            found = (*map(str, self.rules.rejected), self._logs.behind(now))
            self.problems = tuple(text for text in found if text)
            self.is_complete = has_finished and self._logs.known_until == now
            if has_finished:
                time.sleep(_RETRY_S)  # a log that cannot be read now
            else:
                self._wake.wait(_INTERVAL_S)
