"""Steps and losses of one attempt, as the logs of its ranks show them. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from holdfast.decisions.loss_faults import LossHistory, LossLimits, after_report, worse_fault
from holdfast.decisions.step_lines import LogProgress, after_line
from holdfast.model.jobs import LossAction, LossFault

_ALL: Final = "all ranks that log losses"
_NAMED: Final = 8
"""Maximum number of ranks that a message names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedSteps:
    """What the logs of an attempt have shown so far.

    Each log has a history of its own: ranks that log their own losses differ, and a difference
    between two ranks is no spike.
    """

    progress: Mapping[int, LogProgress] = field(default_factory=dict)
    """By rank, as is ``losses``."""

    losses: Mapping[int, LossHistory] = field(default_factory=dict)
    first: int | None = None
    """First step; None while none is known."""

    last: int | None = None
    """Highest step; None while none is known."""

    where: Mapping[int, str] = field(default_factory=dict)
    """Rank and node of each log, for people to read; logs without them are missing."""

    fault: LossFault | None = None
    """First loss of any rank that is not finite, or else the first spike. The evidence names the
    ranks; of a fault that stops the job, the first one only."""


def after_lines(
    steps: LoggedSteps, rank: int, lines: Iterable[str], limits: LossLimits, *, where: str = ""
) -> LoggedSteps:
    """Return what is known after more lines of a log.

    Args:
        steps: what was known before.
        rank: the log; any number that identifies it.
        lines: its next lines.
        limits: when a loss is a fault.
        where: rank and node of the log, for the evidence of a fault; empty to omit them.

    """
    progress = steps.progress.get(rank, LogProgress())
    losses = steps.losses.get(rank, LossHistory())
    first, last = steps.first, steps.last
    for line in lines:
        progress, report = after_line(progress, line)
        if report is None:
            continue
        losses = after_report(losses, report, limits)
        first = report.step if first is None else first
        last = report.step if last is None else max(last, report.step)
    found = replace(
        steps,
        progress={**steps.progress, rank: progress},
        losses={**steps.losses, rank: losses},
        where={**steps.where, rank: where} if where else steps.where,
        first=first,
        last=last,
    )
    own = losses.fault
    own = _named(own, where) if own is not None and where else own
    fault = worse_fault(steps.fault, own)
    if fault is not None and fault.action is LossAction.ASK:
        fault = _with_reporters(found, fault)
    return replace(found, fault=fault)


def _with_reporters(steps: LoggedSteps, fault: LossFault) -> LossFault:
    """Return a fault that names all ranks that have reported it so far, at the same step."""
    same = (fault.reason, fault.step)
    ranks = {
        rank: losses.fault
        for rank, losses in steps.losses.items()
        if losses.fault is not None and (losses.fault.reason, losses.fault.step) == same
    }
    if not ranks or not ranks.keys() <= steps.where.keys():
        return fault
    logs = sum(bool(one.recent) or one.fault is not None for one in steps.losses.values())
    named = [steps.where[rank] for rank in sorted(ranks)]
    more = len(named) - _NAMED
    who = ", ".join(named[:_NAMED]) + (f" and {more} more" if more > 0 else "")
    return _named(ranks[min(ranks)], _ALL if len(ranks) == logs > 1 else who)


def _named(fault: LossFault, who: str) -> LossFault:
    return replace(fault, evidence=f"{who}: {fault.evidence}")
