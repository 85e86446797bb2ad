"""Evaluates log rules on the logs of the ranks of a job on one node."""

import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.decisions.launch_events import Suspected

if TYPE_CHECKING:
    from holdfast.adapters.host.job_log_rules import JobLogRules
    from holdfast.adapters.host.pattern_matcher import PatternMatcher
    from holdfast.decisions.log_rules import JobLogRule
    from holdfast.kit.appended_lines import AppendedLines

_INTERVAL_S: Final = 1.0
_LOG_BYTES: Final = 1 << 18
"""Maximum bytes of a log that a check reads, so that it takes milliseconds."""


class LogRuleWatch:
    """Log rules of the rounds of a job whose ranks are all on this node."""

    def __init__(self, rules: "Sequence[JobLogRule]") -> None:
        self._given = rules
        self._matcher: PatternMatcher | None = None
        self._rules: JobLogRules | None = None
        """None unless a round is watched."""

        self._logs: list[tuple[int, AppendedLines]] = []
        self._began_at = datetime.now(UTC)
        self._known_until: datetime | None = None
        self._check_at = 0.0
        self._reported = 0
        """Number of rejected rules that were reported."""

    def begin(self, logs: Mapping[int, Sequence[Path]]) -> None:
        """Watch a new round, whose ranks have just started.

        Args:
            logs: new logs by rank.

        """
        if not self._given:
            return
        from holdfast.adapters.host.job_log_rules import JobLogRules  # noqa: PLC0415 - with rules only
        from holdfast.adapters.host.pattern_matcher import PatternMatcher  # noqa: PLC0415 - with rules only
        from holdfast.kit.appended_lines import AppendedLines  # noqa: PLC0415 - with rules only

        self._matcher = self._matcher or PatternMatcher()
        self._rules = JobLogRules(self._matcher, self._given)
        self._logs = [
            (rank, AppendedLines(path, chunk=_LOG_BYTES))
            for rank, paths in logs.items()
            for path in paths
        ]
        self._began_at, self._known_until = datetime.now(UTC), None
        self._check_at, self._reported = time.monotonic() + _INTERVAL_S, 0

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
        """Return the monotonic time of the next call of ``hang``; None if nothing is watched."""
        return None if self._rules is None else self._check_at

    def hang(self, launcher: str, number: int) -> Suspected | None:
        """Return the hang that the rules find in a round, once; None if there is none.

        Args:
            launcher: name of the launcher.
            number: number of the round.

        """
        rules = self._rules
        if rules is None or time.monotonic() < self._check_at:
            return None
        self._check_at = time.monotonic() + _INTERVAL_S
        now = datetime.now(UTC)
        for rank, log in self._logs:
            lines = [line.decode("utf-8", "replace") for line in log.read()]
            rules.take_or_end(rank, lines, at=now, where=f"rank {rank}")
        if not any(log.has_more for _, log in self._logs):
            self._known_until = now
        for one in rules.rejected[self._reported :]:
            sys.stderr.write(f"holdfast: JobUnwatched: {one}\n")
        self._reported = len(rules.rejected)
        found = rules.hang(self._began_at, self._known_until)
        if found is None:
            return None
        self.end()
        return Suspected(
            launcher=launcher,
            round=number,
            rank=min(rank for rank, _ in self._logs),
            text=f"{found.reason}: {found.evidence}",
            restart=True,
            stalled_s=(now - found.since).total_seconds(),
        )
