"""Evaluates log rules on the logs of the ranks of a job on one node."""

import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.decisions.launch_events import Suspected

if TYPE_CHECKING:
    from holdfast.adapters.host.attempt_logs import AttemptLogs
    from holdfast.adapters.host.job_log_rules import JobLogRules
    from holdfast.adapters.host.pattern_matcher import PatternMatcher
    from holdfast.decisions.log_rules import JobLogRule

_INTERVAL_S: Final = 1.0


class LogRuleWatch:
    """Log rules of the rounds of a job whose ranks are all on this node."""

    def __init__(self, rules: "Sequence[JobLogRule]") -> None:
        self._given = rules
        self._matcher: PatternMatcher | None = None
        self._rules: JobLogRules | None = None
        """None unless a round is watched."""

        self._logs: AttemptLogs | None = None
        self._ranks: list[int] = []
        """Rank of each log."""

        self._began_at = datetime.now(UTC)
        self._check_at = 0.0
        self.has_found = False
        """Whether a hang of the round was returned, for which its ranks end."""

        self._reported: set[str] = set()

    def begin(self, logs: Mapping[int, Sequence[Path]]) -> None:
        """Watch a new round, whose ranks have not started: what its logs have is not of theirs.

        Args:
            logs: logs by rank.

        """
        self.has_found = False
        if not self._given:
            return
        from holdfast.adapters.host.attempt_logs import CHUNK_BYTES, AttemptLogs  # noqa: PLC0415 - with rules only
        from holdfast.adapters.host.job_log_rules import JobLogRules  # noqa: PLC0415 - with rules only
        from holdfast.adapters.host.pattern_matcher import PatternMatcher  # noqa: PLC0415 - with rules only
        from holdfast.kit.appended_lines import AppendedLines, file_size  # noqa: PLC0415 - with rules only

        self._matcher = self._matcher or PatternMatcher()
        self._rules = JobLogRules(self._matcher, self._given)
        self._ranks = [rank for rank, paths in logs.items() for _ in paths]
        paths = [path for paths in logs.values() for path in paths]
        self._logs = AttemptLogs(
            [AppendedLines(path, offset=file_size(path), chunk=CHUNK_BYTES) for path in paths]
        )
        self._began_at, self._reported = datetime.now(UTC), set()
        self._check_at = time.monotonic() + _INTERVAL_S

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
        rules, logs = self._rules, self._logs
        if rules is None or logs is None or time.monotonic() < self._check_at:
            return None
        now = datetime.now(UTC)
        for index, lines in logs.read(now):
            rank = self._ranks[index]
            rules.take_or_end(rank, lines, at=now, where=f"rank {rank}")
        self._check_at = time.monotonic() + _INTERVAL_S
        unwatched = [*map(str, rules.rejected), logs.behind(now)]
        for text in unwatched:
            if text and text not in self._reported:
                sys.stderr.write(f"holdfast: JobUnwatched: {text}\n")
        self._reported |= {*unwatched}
        found = rules.hang(self._began_at, logs.known_until)
        if found is None:
            return None
        self.end()
        self.has_found = True
        return Suspected(
            launcher=launcher,
            round=number,
            rank=min(self._ranks) if found.rank is None else found.rank,
            text=f"{found.reason}: {found.evidence}",
            restart=True,
            stalled_s=(now - found.since).total_seconds(),
        )
