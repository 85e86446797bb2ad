"""Inspection of all ranks of a round when one of them seems to hang: pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from holdfast.decisions.evidence_precedence import recent, verdict_of
from holdfast.decisions.flight_recorder import RankFindings
from holdfast.decisions.hang_verdict import Verdict, VerdictKind
from holdfast.decisions.inspection_tries import LIMIT, is_incomplete, is_repeated, limit_of
from holdfast.decisions.kernel_lines import NodeKernelLog
from holdfast.decisions.launch_events import Failed, Inspected, Suspected
from holdfast.decisions.rank_snapshots import Frame, RankSnapshot

_NODE_SIDE: Final = (VerdictKind.UNINTERRUPTIBLE, VerdictKind.STORAGE)
"""Verdicts on single ranks whose cause is below the program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """The inspection of one suspected hang."""

    number: int
    """Number in its round, from 1."""

    suspicion: Suspected
    suspected_at: datetime
    """Time of the suspicion, before the first try."""

    until: datetime
    """The verdict is made by then, also without launchers that do not respond."""

    tries: int = 1
    """Number of inspections of this hang; those before had too little time."""

    found: Mapping[str, Inspected] = field(default_factory=dict)
    """By launcher."""

    stacks: Mapping[tuple[Frame, ...], tuple[Frame, ...]] = field(default_factory=dict)
    """Each different stack once: thousands of ranks have a few of them."""

    verdict: str | None = None
    """What the ranks do; None while that is not known, empty if they continue."""

    conclusion: Verdict | None = None
    seen: tuple[RankSnapshot, ...] = ()
    kernel: tuple[NodeKernelLog, ...] = ()
    """What the verdict was made of; kept until the next inspection."""

    @property
    def stalled_since(self) -> datetime | None:
        """Return the time of the last step of the suspected rank, or of the start of its round."""
        stalled_s = self.suspicion.stalled_s
        return None if stalled_s is None else self.suspected_at - timedelta(seconds=stalled_s)

    @property
    def limit(self) -> timedelta:
        """Return the timeout of this inspection."""
        return limit_of(self.tries)


@dataclass(frozen=True, slots=True, kw_only=True)
class HungRank:
    """The rank that counts as failed when the ranks of a round hang."""

    launcher: str
    """Empty if no node is known to have the rank."""

    rank: int
    """-1 if all ranks hang, and none is known to be the cause."""

    text: str
    is_node_side: bool = False
    """Whether its node is the cause: its kernel or its storage does not respond."""


def after_timeout(event: Failed, elapsed: timedelta) -> Suspected:
    """Return the suspicion after a collective of a rank has timed out.

    Args:
        event: failure of the rank.
        elapsed: time since the start of the round; its last step is unknown.

    """
    return Suspected(
        launcher=event.launcher,
        round=event.round,
        rank=event.rank,
        text=event.text,
        restart=True,
        stalled_s=elapsed.total_seconds(),
    )


def begin(before: Inspection | None, suspicion: Suspected, now: datetime) -> Inspection:
    """Return the inspection of a suspected hang; one that is open continues instead.

    Args:
        before: last inspection of the job; None if there was none.
        suspicion: a suspicion of the current round.
        now: current time.

    """
    number = 1
    if before is not None and before.suspicion.round == suspicion.round:
        if before.verdict is None:
            return before
        number = before.number + 1
    return Inspection(number=number, suspicion=suspicion, suspected_at=now, until=now + LIMIT)


def with_suspicion(before: Inspection | None, suspicion: Suspected, now: datetime) -> Inspection:
    """Return the inspection after a report of a launcher, see ``begin``.

    An open one that restarts nothing gets a suspicion that does: its launcher reports it once.
    """
    found = begin(before, suspicion, now)
    if found.suspicion.restart or not suspicion.restart:
        return found
    return replace(found, suspicion=suspicion, until=min(found.until, now + LIMIT))


def with_report(inspection: Inspection, report: Inspected) -> Inspection:
    """Return the inspection with the report of a launcher; a report on another one is ignored."""
    key = (inspection.suspicion.round, inspection.number)
    if inspection.verdict is not None or (report.round, report.number) != key:
        return inspection
    stacks = dict(inspection.stacks)
    snapshots = tuple(
        replace(one, frames=stacks.setdefault(one.frames, one.frames)) for one in report.snapshots
    )
    found = {**inspection.found, report.launcher: replace(report, snapshots=snapshots)}
    return replace(inspection, found=found, stacks=stacks)


def is_open(inspection: Inspection | None, number: int) -> bool:
    """Return whether the verdict of an inspection of round ``number`` is awaited."""
    if inspection is None or inspection.verdict is not None:
        return False
    return inspection.suspicion.round == number


def concluded(
    inspection: Inspection, launchers: Collection[str], now: datetime
) -> tuple[Inspection, HungRank | None]:
    """Return an open inspection with its verdict if that is known, and the rank that hangs.

    The rank is None while the verdict is awaited, if the suspected rank has continued, and if hung
    ranks are only reported.

    Args:
        inspection: an open inspection.
        launchers: launchers with ranks that may be alive.
        now: current time.

    """
    missing = sorted(set(launchers) - inspection.found.keys())
    if missing and now < inspection.until:
        return inspection, None
    suspicion = inspection.suspicion
    own = inspection.found.get(suspicion.launcher)
    if own is not None and not (own.is_stalled or suspicion.is_proven):
        return replace(inspection, verdict="", found={}, stacks={}), None
    reports = inspection.found.values()
    seen = _seen(reports, inspection.stalled_since)
    found = verdict_of(seen)
    if is_repeated(
        names_rank=bool(found.ranks),
        is_incomplete=is_incomplete(seen) or not (seen.snapshots or seen.traces),
        tries=inspection.tries,
        restarts=suspicion.restart,
    ):
        return _next_try(inspection, now), None
    text = f"{suspicion.text}; {found.text}{_unseen(missing, reports)}"
    done = replace(
        inspection,
        verdict=text,
        found={},
        stacks={},
        conclusion=found,
        seen=seen.snapshots,
        kernel=seen.kernel,
    )
    if not suspicion.restart:
        return done, None
    rank = found.ranks[0] if found.ranks else suspicion.rank
    hung = HungRank(
        launcher=_launcher_of(rank, seen.snapshots, suspicion),
        rank=rank,
        text=text,
        is_node_side=bool(found.ranks) and found.kind in _NODE_SIDE,
    )
    return done, hung


def _seen(reports: Collection[Inspected], since: datetime | None) -> RankFindings:
    """Return what all launchers report, with the kernel lines since the last step."""
    snapshots = sorted(
        (one for report in reports for one in report.snapshots), key=lambda one: one.rank
    )
    traces = sorted((one for report in reports for one in report.traces), key=lambda one: one.rank)
    found = RankFindings(
        snapshots=tuple(snapshots),
        traces=tuple(traces),
        ras=next((one.ras for one in reports if one.ras is not None), None),
        kernel=tuple(one for report in reports for one in report.kernel),
    )
    return recent(found, since)


def _next_try(inspection: Inspection, now: datetime) -> Inspection:
    tries = inspection.tries + 1
    return replace(
        inspection,
        number=inspection.number + 1,
        until=now + limit_of(tries),
        tries=tries,
        found={},
        stacks={},
    )


def _launcher_of(rank: int, snapshots: Collection[RankSnapshot], suspicion: Suspected) -> str:
    nodes = (one.node for one in snapshots if one.rank == rank)
    return next(nodes, suspicion.launcher if suspicion.rank == rank >= 0 else "")


def _unseen(missing: list[str], reports: Collection[Inspected]) -> str:
    """Return which ranks the verdict does not know; empty if it knows all."""
    text = f"; {_nodes(missing)} did not report stacks" if missing else ""
    cut = sorted(report.launcher for report in reports if report.omitted)
    if not cut:
        return text
    count = sum(report.omitted for report in reports)
    ranks = "1 rank" if count == 1 else f"{count} ranks"
    return f"{text}; without {ranks} of {_nodes(cut)}: the report had reached its maximum size"


def _nodes(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
