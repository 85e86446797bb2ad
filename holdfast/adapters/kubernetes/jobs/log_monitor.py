"""The verdict on one attempt of a job, by all that its pods print."""

import threading
from collections.abc import Sequence
from datetime import datetime

from holdfast.adapters.kubernetes.client.values import Rejection, excerpt
from holdfast.adapters.kubernetes.jobs.pattern_matcher import PatternMatcher
from holdfast.decisions.hangs import Hang
from holdfast.decisions.log_rules import LogRule, RuleState, after_line, due, first_hang
from holdfast.ports.clock import Clock


class LogMonitor:
    """Takes lines from any thread. Rules whose patterns cannot be used are left out.

    Any rank's line counts for the whole job: ranks that hang hang together, and most of them print
    nothing. Times are those at which lines came, by our clock; those of nodes may be wrong.
    """

    def __init__(
        self, matcher: PatternMatcher, clock: Clock, rules: Sequence[LogRule], started_at: datetime
    ) -> None:
        """Try the patterns of the rules.

        Args:
            matcher: matches lines.
            clock: tells when a line comes.
            rules: what is expected.
            started_at: when all ranks ran.

        Raises:
            BackendError: they could not be tried.

        """
        self._matcher = matcher
        self._clock = clock
        self._started_at = started_at
        self._lock = threading.Lock()
        self._states = {rule: RuleState() for rule in rules}
        self._rejected: list[Rejection] = []
        self.take(0, ())

    @property
    def rejected(self) -> tuple[Rejection, ...]:
        """Patterns that cannot be used."""
        return tuple(self._rejected)

    @property
    def due(self) -> datetime | None:
        """From when on silence may be a hang; None if it never is."""
        with self._lock:
            found = [due(rule, state, self._started_at) for rule, state in self._states.items()]
        return min((at for at in found if at is not None), default=None)

    def take(self, rank: int, lines: Sequence[str]) -> None:
        """A rank has printed lines.

        Raises:
            BackendError: they could not be matched, and were not taken.

        """
        with self._lock:
            rules = tuple(self._states)
        if not rules:
            return
        found = self._matcher.match(rules, lines)
        now = self._clock.now()
        with self._lock:
            for rule, hits in zip(rules, found, strict=True):
                if rule not in self._states:
                    continue
                if isinstance(hits, str):
                    del self._states[rule]
                    self._rejected.append(_rejection(rule, hits))
                    continue
                for index, hit in hits:
                    self._states[rule] = after_line(
                        rule, self._states[rule], hit, rank=rank, line=lines[index], at=now
                    )

    def hang(self, known_until: datetime | None) -> Hang | None:
        """Why the job hangs; None if it does not. See ``first_hang``."""
        with self._lock:
            return first_hang(self._states.items(), self._started_at, known_until)


def _rejection(rule: LogRule, expected: str) -> Rejection:
    value = f"{rule.pattern} {rule.stop_pattern}".rstrip()
    return Rejection(key=f"log rule {rule.name}", value=excerpt(value), expected=expected)
