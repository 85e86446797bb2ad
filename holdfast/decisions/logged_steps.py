"""Steps and losses of one attempt, as the logs of its ranks show them. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from holdfast.decisions.loss_faults import LossHistory, LossLimits, after_report, worse_fault
from holdfast.decisions.step_lines import LogProgress, after_line
from holdfast.model.jobs import LossFault


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

    fault: LossFault | None = None
    """First loss of any rank that is not finite, or else the first spike."""


def after_lines(
    steps: LoggedSteps, rank: int, lines: Iterable[str], limits: LossLimits, *, where: str = ""
) -> LoggedSteps:
    """Return what is known after more lines of a log.

    Args:
        steps: what was known before.
        rank: the log; any number that identifies it.
        lines: its next lines.
        limits: when a loss is a fault.
        where: where the log is from, for the evidence of a fault; empty to omit it.

    """
    progress = steps.progress.get(rank, LogProgress())
    losses = steps.losses.get(rank, LossHistory())
    first, last = steps.first, steps.last
    for line in lines:
        progress, report = after_line(progress, line)
        if report is None:
            continue
        losses = after_report(losses, report, limits, where=where)
        first = report.step if first is None else first
        last = report.step if last is None else max(last, report.step)
    return replace(
        steps,
        progress={**steps.progress, rank: progress},
        losses={**steps.losses, rank: losses},
        first=first,
        last=last,
        fault=worse_fault(steps.fault, losses.fault),
    )
