"""Matches log rules with the logs of the ranks of one node."""

import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.decisions.launch_events import LogsRead

if TYPE_CHECKING:
    from holdfast.adapters.host.attempt_logs import AttemptLogs
    from holdfast.adapters.host.job_log_rules import JobLogRules
    from holdfast.adapters.host.pattern_matcher import PatternMatcher
    from holdfast.decisions.log_rules import JobLogRule

_INTERVAL_S: Final = 1.0
_REPORT_S: Final = 5.0
"""Time between two reports to a coordinator of several nodes. A line that proves a hang or ends a
rule is reported at once."""


class LogRuleWatch:
    """Log rules of the rounds of a job, for the ranks of this node.

    Args:
        rules: log rules of the job.
        has_others: whether the job may have launchers on other nodes.

    """

    def __init__(self, rules: "Sequence[JobLogRule]", *, has_others: bool) -> None:
        self._given = tuple(rules)
        self._report_s = _REPORT_S if has_others else 0.0
        self._digest = ""
        self._matcher: PatternMatcher | None = None
        self._rules: JobLogRules | None = None
        """None unless a round is watched."""

        self._logs: AttemptLogs | None = None
        self._ranks: list[int] = []
        """Rank of each log."""

        self._check_at = self._report_at = 0.0
        self._settled = 0
        """Reported rules that found a hang or have ended."""

        self._reported: set[str] = set()

    def begin(self, logs: Mapping[int, Sequence[Path]]) -> None:
        """Watch a new round, whose ranks have not started: what its logs have is not of theirs.

        Args:
            logs: logs by rank.

        """
        if not self._given:
            return
        from holdfast.adapters.host.attempt_logs import CHUNK_BYTES, AttemptLogs  # noqa: PLC0415 - with rules only
        from holdfast.adapters.host.job_log_rules import JobLogRules  # noqa: PLC0415 - with rules only
        from holdfast.adapters.host.pattern_matcher import PatternMatcher  # noqa: PLC0415 - with rules only
        from holdfast.decisions.launch_log_rules import digest_of  # noqa: PLC0415 - with rules only
        from holdfast.kit.appended_lines import AppendedLines, file_size  # noqa: PLC0415 - with rules only

        self._matcher = self._matcher or PatternMatcher()
        self._rules = JobLogRules(self._matcher, self._given)
        self._digest = self._digest or digest_of(self._given)
        self._ranks = [rank for rank, paths in logs.items() for _ in paths]
        paths = [path for paths in logs.values() for path in paths]
        self._logs = AttemptLogs(
            [AppendedLines(path, offset=file_size(path), chunk=CHUNK_BYTES) for path in paths]
        )
        self._reported, self._settled = set(), 0
        self._check_at = self._report_at = time.monotonic() + _INTERVAL_S

    def end(self) -> None:
        """Stop watching."""
        self._rules = None

    def close(self) -> None:
        """End the process that matches lines."""
        if self._matcher is not None:
            self._matcher.close()

    @property
    def pids(self) -> set[int]:
        """Process that matches lines, if there is one."""
        return set() if self._matcher is None else self._matcher.pids

    def next_call(self) -> float | None:
        """Return the monotonic time of the next call of ``report``; None if nothing is watched."""
        return None if self._rules is None else self._check_at

    def report(self, launcher: str, number: int, *, is_last: bool) -> LogsRead | None:
        """Read the logs; return what they show by now, None if it need not be reported yet.

        Args:
            launcher: name of the launcher.
            number: number of the round.
            is_last: whether the ranks have ended.

        """
        rules, logs = self._rules, self._logs
        if rules is None or logs is None or (time.monotonic() < self._check_at and not is_last):
            return None
        now = datetime.now(UTC)
        for index, lines in logs.read(now):
            rank = self._ranks[index]
            rules.take_or_end(rank, lines, at=now, where=f"rank {rank}")
        self._check_at = time.monotonic() + _INTERVAL_S
        self._warn([*map(str, rules.rejected), logs.behind(now)])
        states = rules.states()
        settled = sum(one.is_over or one.hang is not None for one in states.values())
        if not is_last and time.monotonic() < self._report_at and settled == self._settled:
            return None
        self._report_at, self._settled = time.monotonic() + self._report_s, settled
        from holdfast.decisions.launch_log_rules import report_of  # noqa: PLC0415 - with rules only

        known = logs.known_until
        return LogsRead(
            launcher=launcher,
            round=number,
            digest=self._digest,
            rules=tuple(report_of(states.get(rule), now) for rule in self._given),
            known_s=None if known is None else max(0.0, (now - known).total_seconds()),
        )

    def _warn(self, problems: Sequence[str]) -> None:
        for text in problems:
            if text and text not in self._reported:
                sys.stderr.write(f"holdfast: JobUnwatched: {text}\n")
        self._reported |= {*problems}
