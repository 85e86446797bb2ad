"""Log rules of a job whose launchers each read the logs of their own ranks: pure.

A line of any rank counts for the whole job, so that no launcher alone can judge missing lines: most
of them see none. Each reports what its logs show, and the coordinator evaluates all of it.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from holdfast.decisions.hangs import Hang
from holdfast.decisions.launch_events import LogRuleReport, LogsRead, Suspected
from holdfast.decisions.launch_state import JobRounds, Phase
from holdfast.decisions.log_rules import JobLogRule, RuleState, first_hang, reason_of
from holdfast.kit.units import one_line

_LONGEST_TEXT: Final = 500
"""Maximum length in characters of what a launcher reports of a line."""

_DIFFERING: Final = timedelta(seconds=15)
_BEHIND: Final = timedelta(minutes=1)
"""Times from the start of a round until it is reported that rules differ, or that launchers do not
report or have not read their logs: they report every 5 s."""

_HANG_BYTES: Final = 1000
_LINE_BYTES: Final = 480
"""Maximum sizes of texts in a report: 20 rules are half of the 64 KiB of a message."""

_LONGEST_S: Final = 1e9
"""Maximum age that a launcher can report, 30 years."""

_SHOWN: Final = 3
"""Launchers that a message names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundLogs:
    """What the logs of one round show."""

    rules: tuple[JobLogRule, ...]
    digest: str
    """Log rules of the coordinator, and what identifies them."""

    round: int = 0
    states: tuple[RuleState, ...] = ()
    """States of the rules for the whole job, in their order."""

    ignored: frozenset[int] = frozenset()
    """Numbers of the rules that a launcher does not evaluate: their lines may be missing."""

    known: Mapping[str, datetime | None] = field(default_factory=dict)
    """Time until which all lines of each launcher were read."""

    complete: frozenset[str] = frozenset()
    """Launchers whose ranks have ended, and of which all lines were read."""

    differing: frozenset[str] = frozenset()
    """Launchers with other rules."""


def no_logs(rules: Sequence[JobLogRule]) -> RoundLogs:
    """Return what is known before the first report; ``rules`` are those of the coordinator."""
    return RoundLogs(rules=tuple(rules), digest=digest_of(rules))


def digest_of(rules: Sequence[JobLogRule]) -> str:
    """Return what identifies rules."""
    return hashlib.sha256(repr(tuple(rules)).encode()).hexdigest()[:16]


def report_of(state: RuleState | None, now: datetime) -> LogRuleReport:
    """Return what a launcher reports of a rule.

    Args:
        state: its state; None if it is not evaluated.
        now: current time.

    """
    if state is None:
        return LogRuleReport(is_evaluated=False)
    hang = state.hang
    return LogRuleReport(
        matched_s=age_s(state.matched_at, now),
        not_finite=_cut(state.not_finite, _LINE_BYTES),
        is_over=state.is_over,
        hang_s=age_s(None if hang is None else hang.at, now),
        hang_rank=0 if hang is None or hang.rank is None else hang.rank,
        hang="" if hang is None else _cut(hang.evidence, _HANG_BYTES),
    )


def after_report(known: RoundLogs, event: LogsRead, now: datetime) -> RoundLogs:
    """Return what is known after the report of a launcher.

    Args:
        known: what was known before; of another round, it is forgotten.
        event: report of a launcher of the current round.
        now: current time of the coordinator: clocks of nodes may be wrong.

    """
    rules = known.rules
    if known.round != event.round:
        states = (RuleState(),) * len(rules)
        known = RoundLogs(rules=rules, digest=known.digest, round=event.round, states=states)
    if event.digest != known.digest or len(event.rules) != len(rules):
        return replace(known, differing=known.differing | {event.launcher})
    pairs = zip(rules, known.states, event.rules, strict=True)
    ignored = {number for number, one in enumerate(event.rules) if not one.is_evaluated}
    return replace(
        known,
        states=tuple(_merged(rule, state, report, now) for rule, state, report in pairs),
        ignored=known.ignored | ignored,
        known={**known.known, event.launcher: _at(event.known_s, now)},
        complete=known.complete | ({event.launcher} if event.is_complete else set()),
    )


def suspicion(known: RoundLogs, job: JobRounds) -> Suspected | None:
    """Return the hang that the rules find; None if there is none.

    Args:
        known: what the logs of the current round show.
        job: the job.

    """
    if job.phase is not Phase.RUN or job.failure is not None or job.round != known.round:
        return None
    judged = [
        (rule, state)
        for number, (rule, state) in enumerate(zip(known.rules, known.states, strict=True))
        if number not in known.ignored or state.hang is not None
    ]
    until = _known_until(known, job)
    hang = first_hang(judged, job.since, until)
    if hang is None:
        return None
    return Suspected(
        launcher=_launcher_of(job, hang.rank),
        round=job.round,
        rank=-1 if hang.rank is None else hang.rank,
        text=f"{hang.reason}: {hang.evidence}",
        restart=True,
        stalled_s=(max(hang.at, until or hang.at) - hang.since).total_seconds(),
        is_proven=True,
    )


def unwatched(known: RoundLogs, job: JobRounds, now: datetime) -> str:
    """Return why missing lines are no evidence, for people to read; empty if they are.

    Args:
        known: what the logs of the current round show.
        job: the job.
        now: current time.

    """
    required = "start all launchers with the same --log-rules FILE"
    is_known = known.round == job.round
    differing = sorted(known.differing & job.active.keys()) if is_known else []
    if differing and now >= job.since + _DIFFERING:
        if not known.rules:
            return f"the coordinator has no log rules: {required}; no rule applies"
        text = f"log rules of {_shown(differing)} differ from those of the coordinator: {required}"
        return f"{text}; lines of their ranks are ignored, and missing lines do not count as a hang"
    if differing or not known.rules or now < job.since + _BEHIND:
        return ""
    silent = sorted(job.active.keys() - known.known.keys()) if is_known else sorted(job.active)
    if silent:
        return f"no log rules on {_shown(silent)}: {required}; missing lines do not count as a hang"
    read = {name: at for name, at in known.known.items() if name not in known.complete}
    behind = sorted(name for name, at in read.items() if at is None or at < now - _BEHIND)
    if behind:
        text = f"logs on {_shown(behind)} cannot be read, or grow faster than they are read"
        return f"{text}: missing lines do not count as a hang"
    return ""


def _merged(rule: JobLogRule, state: RuleState, report: LogRuleReport, now: datetime) -> RuleState:
    """Return the state of a rule for the whole job, after a report on some of its ranks."""
    times = [one for one in (state.matched_at, _at(report.matched_s, now)) if one is not None]
    matched_at = max(times, default=None)
    not_finite = state.not_finite if matched_at == state.matched_at else ""
    if report.not_finite:
        not_finite = one_line(report.not_finite, _LONGEST_TEXT)
    hang, at = state.hang, _at(report.hang_s, now)
    if at is not None and hang is None and not state.is_over:
        evidence = one_line(report.hang, _LONGEST_TEXT)
        hang = Hang(
            reason=reason_of(rule), since=at, at=at, evidence=evidence, rank=report.hang_rank
        )
    return RuleState(
        matched_at=matched_at,
        not_finite=not_finite,
        is_over=state.is_over or report.is_over,
        hang=hang,
    )


def _known_until(known: RoundLogs, job: JobRounds) -> datetime | None:
    """Return the time until which all lines of all ranks were read; None if nothing is known."""
    if known.differing & job.active.keys():
        return None
    times = [known.known.get(name) for name in job.active.keys() - known.complete]
    read = [one for one in times if one is not None]
    return min(read) if read and len(read) == len(times) else None


def _launcher_of(job: JobRounds, rank: int | None) -> str:
    """Return the launcher of a rank; the first one for none."""
    first = 0
    for name, member in job.active.items():
        if rank is None or first <= rank < first + member.slots:
            return name
        first += member.slots
    return next(iter(job.active))


def age_s(at: datetime | None, now: datetime) -> float | None:
    """Return the seconds since a time; None for none."""
    return None if at is None else max(0.0, (now - at).total_seconds())


def _at(ago_s: float | None, now: datetime) -> datetime | None:
    """Return the time ``ago_s`` before ``now``, as another process reported it; None if unknown."""
    return None if ago_s is None else now - timedelta(seconds=min(max(0.0, ago_s), _LONGEST_S))


def _shown(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _cut(text: str, size: int) -> str:
    """Return a text, shortened if it takes more than ``size`` bytes of JSON."""
    return text if len(json.dumps(text)) <= size else text[: size // 12]
