"""Evaluates the log rules of one attempt of a job."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from holdfast.adapters.host.pattern_matcher import Hits, PatternMatcher
from holdfast.decisions.hangs import Hang
from holdfast.decisions.log_rules import JobLogRule, RuleState, after_line, due, first_hang
from holdfast.kit.rejections import Rejection, excerpt
from holdfast.model.errors import BackendError

_LINE_CHARS: Final = 4096
"""Characters of a line that are matched, as on Kubernetes."""

_PIECE_CHARS: Final = 1 << 16
"""Characters that are matched at once: the limit of processor time is for so many."""


class JobLogRules:
    """Evaluates log rules on lines from any thread. Rules with invalid patterns are ignored.

    A line of any rank counts for the whole job: ranks hang together, and most of them print
    nothing.

    Args:
        matcher: matches lines with patterns.
        rules: log rules of the job.

    """

    def __init__(self, matcher: PatternMatcher, rules: Sequence[JobLogRule]) -> None:
        self._matcher = matcher
        self._lock = threading.Lock()
        self._states = {rule: RuleState() for rule in rules}
        self._rejected: list[Rejection] = []
        self._has_ended = False

    def validate(self) -> None:
        """Reject rules with invalid patterns, before there are lines.

        Raises:
            BackendError: the patterns could not be validated.

        """
        self.take(0, (), at=datetime.min.replace(tzinfo=UTC))

    @property
    def are_given(self) -> bool:
        """Whether there are rules to evaluate."""
        return bool(self._states) and not self._has_ended

    def states(self) -> dict[JobLogRule, RuleState]:
        """Return the state of each rule that is evaluated."""
        with self._lock:
            return dict(self._states)

    @property
    def rejected(self) -> tuple[Rejection, ...]:
        """Rules whose patterns are invalid, and why rules are no longer evaluated."""
        return tuple(self._rejected)

    def due(self, started_at: datetime) -> datetime | None:
        """Time from which silence may be a hang; None if no rule has a timeout.

        Args:
            started_at: time from which all ranks ran.

        """
        with self._lock:
            found = [due(rule, state, started_at) for rule, state in self._states.items()]
        return min((at for at in found if at is not None), default=None)

    def take(self, rank: int, lines: Sequence[str], *, at: datetime, where: str = "") -> None:
        """Evaluate lines.

        Args:
            rank: log of the lines; any number that identifies it.
            lines: its next lines.
            at: time at which they arrived, by our clock, since clocks of nodes may be wrong.
            where: who printed them, for people to read; empty for the node rank.

        Raises:
            BackendError: matching failed; the lines were not evaluated.

        """
        pieces = tuple(_pieces(lines))
        with self._lock:
            rules = tuple(self._states)
        found: list[tuple[JobLogRule, Hits | str, list[str]]] = []
        for piece in pieces if rules else ():
            answers = [*zip(rules, self._matcher.match(rules, piece), strict=True)]
            found += [(rule, hits, piece) for rule, hits in answers]
            rules = tuple(rule for rule, hits in answers if not isinstance(hits, str))
        with self._lock:
            for rule, hits, piece in found:
                self._add(rule, hits, piece, rank, at, where)

    def _add(
        self,
        rule: JobLogRule,
        hits: Hits | str,
        lines: Sequence[str],
        rank: int,
        at: datetime,
        where: str,
    ) -> None:
        if rule not in self._states:
            return
        if isinstance(hits, str):
            del self._states[rule]
            self._rejected.append(_rejection(rule, hits))
            return
        state = self._states[rule]
        for index, hit in hits:
            line = lines[index]
            state = after_line(rule, state, hit, rank=rank, line=line, at=at, where=where)
        self._states[rule] = state

    def take_or_end(
        self, rank: int, lines: Sequence[str], *, at: datetime, where: str = ""
    ) -> None:
        """Evaluate lines, see ``take``; if that fails twice, nothing more in this attempt.

        The absence of lines that are lost would look like a hang.
        """
        if not (self.are_given and lines):
            return
        with suppress(BackendError):
            self.take(rank, lines, at=at, where=where)
            return
        try:
            self.take(rank, lines, at=at, where=where)
        except BackendError as error:
            with self._lock:
                names = ", ".join(rule.name for rule in self._states)
                self._states = {
                    rule: state for rule, state in self._states.items() if state.hang is not None
                }
                self._has_ended = True
            expected = f"no failure, but {error}: they are not evaluated in this attempt"
            self._rejected.append(Rejection("log rules", excerpt(names), expected))

    def hang(self, started_at: datetime, known_until: datetime | None) -> Hang | None:
        """First hang that a rule finds; None if there is none. See ``first_hang``."""
        with self._lock:
            return first_hang(self._states.items(), started_at, known_until)


def _pieces(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yield the lines in parts that can be matched at once; one without lines if there are none."""
    piece: list[str] = []
    size = 0
    for line in (line[:_LINE_CHARS] for line in lines):
        if piece and size + len(line) > _PIECE_CHARS:
            yield piece
            piece, size = [], 0
        piece.append(line)
        size += len(line)
    yield piece


def _rejection(rule: JobLogRule, expected: str) -> Rejection:
    value = f"{rule.pattern} {rule.stop_pattern}".rstrip()
    return Rejection(key=f"log rule {rule.name}", value=excerpt(value), expected=expected)
