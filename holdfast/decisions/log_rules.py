"""Detection of hangs by log lines of the ranks: the rules of HyperPod's training operator."""

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from holdfast.decisions.hangs import AttemptProgress, Hang, HangLimits, hangs_at, silence
from holdfast.decisions.step_lines import has_bad_loss
from holdfast.kit.units import one_line
from holdfast.model.names import LOG_STATE_HANGING

_SHOWN_CHARS: Final = 200


class Comparison(StrEnum):
    """Comparison of a number in the log with a threshold."""

    GT = "gt"
    GTEQ = "gteq"
    LT = "lt"
    LTEQ = "lteq"
    EQ = "eq"


_COMPARED: Final[Mapping[Comparison, Callable[[float, float], bool]]] = {
    Comparison.GT: operator.gt,
    Comparison.GTEQ: operator.ge,
    Comparison.LT: operator.lt,
    Comparison.LTEQ: operator.le,
    Comparison.EQ: operator.eq,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLogRule:
    """Rule for a job's log. Its patterns are matched by the caller, line by line."""

    name: str
    pattern: str
    """Regular expression for the start of a line; its first group may be a number."""

    start_cutoff: timedelta | None = None
    """Time from the start of the attempt within which the first line must match."""

    frequency: timedelta | None = None
    """Maximum time between two matching lines, and since the last one."""

    threshold: float | None = None
    comparison: Comparison = Comparison.GT
    """The job is too slow while this comparison of its number with the threshold holds."""

    data_points: int = 1
    """Number of consecutive too-slow numbers of one rank that is a hang."""

    stop_pattern: str = ""
    """The rule ends with the first line that matches this; empty for never."""

    fault_on_match: bool = False
    """Whether a matching line is a failure by itself."""

    @property
    def limits(self) -> HangLimits:
        """Return the maximum times without a matching line."""
        if self.fault_on_match:
            return HangLimits()
        return HangLimits(startup=self.start_cutoff, pause=self.frequency)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """Result of matching a line against a rule."""

    is_match: bool
    number: float | None = None
    """Number in the first group, if it is one; NaN and infinity are numbers, but no progress."""

    is_stop: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleState:
    """State of one rule for one attempt."""

    matched_at: datetime | None = None
    """Time of the last matching line that shows progress."""

    not_finite: str = ""
    """Last line with the number NaN or infinity, if none has shown progress since."""

    slow: Mapping[int, int] = field(default_factory=dict)
    """Number of consecutive too-slow numbers up to the last one, by rank."""

    is_over: bool = False
    hang: Hang | None = None
    """Hang that a line has proven."""


def after_line(
    rule: JobLogRule,
    state: RuleState,
    hit: Hit,
    *,
    rank: int,
    line: str,
    at: datetime,
    where: str = "",
) -> RuleState:
    """Return the state after one more line.

    Args:
        rule: the rule.
        state: state before the line.
        hit: result of matching the line against the rule.
        rank: log of the line; any number that identifies it, such as a node rank.
        line: the line, for people to read.
        at: time of the line.
        where: who printed it, for people to read; empty for the node rank.

    """
    if state.is_over or state.hang is not None:
        return state
    if hit.is_stop:
        return replace(state, is_over=True)
    if not hit.is_match:
        return state
    shown = one_line(line[:_SHOWN_CHARS], _SHOWN_CHARS)
    where = where or f"node rank {rank}"
    if rule.fault_on_match:
        return replace(state, hang=_hang(rule, at, rank, f"{where} printed: {shown}"))
    is_finite = not has_bad_loss(line) if hit.number is None else math.isfinite(hit.number)
    if is_finite:
        state = replace(state, matched_at=max(at, state.matched_at or at), not_finite="")
    else:
        state = replace(state, not_finite=shown)
    if rule.threshold is None or hit.number is None:
        return state
    is_slow = not is_finite or _COMPARED[rule.comparison](hit.number, rule.threshold)
    in_a_row = state.slow.get(rank, 0) + 1 if is_slow else 0
    state = replace(state, slow={**state.slow, rank: in_a_row})
    if in_a_row < rule.data_points:
        return state
    found = (
        f"{where} printed {in_a_row} in a row that are {rule.comparison} "
        f"{rule.threshold:g} or not finite, last: {shown}"
    )
    return replace(state, hang=_hang(rule, at, rank, found))


def due(rule: JobLogRule, state: RuleState, started_at: datetime) -> datetime | None:
    """Return when the rule reports a hang if no line matches before; None for never.

    Args:
        rule: the rule.
        state: state of the rule.
        started_at: time at which all ranks ran.

    """
    if state.is_over or state.hang is not None:
        return None
    return hangs_at(rule.limits, started_at, state.matched_at)


def first_hang(
    judged: Iterable[tuple[JobLogRule, RuleState]],
    started_at: datetime,
    known_until: datetime | None,
) -> Hang | None:
    """Return the hang that began to count first; None if there is none.

    While the ranks of one are inspected, more rules find theirs: they must not take its place.

    Args:
        judged: the rules, each with its state.
        started_at: time at which all ranks ran.
        known_until: the states include all lines until then. Missing lines after it are no evidence
            of a hang; None if nothing is known.

    """
    found = (state.hang or _silence(rule, state, started_at, known_until) for rule, state in judged)
    return min(filter(None, found), key=lambda hang: hang.at, default=None)


def _silence(
    rule: JobLogRule, state: RuleState, started_at: datetime, known_until: datetime | None
) -> Hang | None:
    if state.is_over:
        return None
    but = f" with a finite number (last: {state.not_finite})" if state.not_finite else ""
    return silence(
        rule.limits,
        AttemptProgress(started_at=started_at, last_at=state.matched_at, known_until=known_until),
        reason=reason_of(rule),
        missing=f"no line matched {rule.pattern[:_SHOWN_CHARS]!r}{but}",
    )


def _hang(rule: JobLogRule, at: datetime, rank: int, evidence: str) -> Hang:
    return Hang(reason=reason_of(rule), since=at, at=at, evidence=evidence, rank=rank)


def reason_of(rule: JobLogRule) -> str:
    """Return the reason code of hangs that a rule finds."""
    return f"{LOG_STATE_HANGING}{rule.name}"
