"""The rank that a hang is blamed on if stacks, flight recorders and NCCL's RAS disagree: pure.

1. What the kernel reports of a process decides: it has ended, is stopped, or sleeps in a device or
   a file system.
2. A rank that both stacks and flight recorders name is blamed.
3. A rank that only its stack puts elsewhere is blamed, too, unless its own flight recorder has a
   collective that is not over: then it waits as the others do, for example in ``item()`` for the
   result of an asynchronous all-reduce. The recorder of another rank does not clear it: a stage of
   a pipeline that waits for it has not entered its next collective either.
4. Otherwise flight recorders decide, then RAS, whose counts are those of one communicator.

Lines of the nodes' kernel logs that may explain the hang are quoted. They do not change the
verdict.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from holdfast.decisions.flight_recorder import RankFindings, RankTrace, recorded_verdict
from holdfast.decisions.hang_verdict import Verdict, VerdictKind, rank_names, verdict
from holdfast.decisions.kernel_evidence import kernel_text
from holdfast.decisions.kernel_lines import since_last_step

_OF_KERNEL: Final = (
    VerdictKind.DEAD_PEER, VerdictKind.STOPPED, VerdictKind.UNINTERRUPTIBLE, VerdictKind.STORAGE,
)  # fmt: skip


def verdict_of(found: RankFindings) -> Verdict:
    """Return which rank the others wait for, by all that was found; each source is quoted."""
    decided = _of_ranks(found)
    kernel = kernel_text(found.kernel, found.snapshots, decided.ranks)
    return replace(decided, text=f"{decided.text}; {kernel}") if kernel else decided


def recent(found: RankFindings, since: datetime | None) -> RankFindings:
    """Return findings with the kernel lines since the last step, within bounds.

    Args:
        found: what the ranks do.
        since: time of the last step, or of the start of the attempt; None if unknown.

    """
    return replace(found, kernel=since_last_step(found.kernel, since))


def _of_ranks(found: RankFindings) -> Verdict:
    decided = verdict(found.snapshots)
    recorded = recorded_verdict(found.traces)
    if recorded is not None:
        decided = _with_recorders(decided, recorded, found.traces)
    if found.ras is None:
        return decided
    decides = found.ras if found.ras.ranks and not decided.ranks else decided
    text = f"{decided.text}; NCCL RAS: {found.ras.text}"
    return replace(decides, text=text)


def _with_recorders(seen: Verdict, recorded: Verdict, traces: Sequence[RankTrace]) -> Verdict:
    both = f"{seen.text}; flight recorder: {recorded.text}"
    if not recorded.ranks or (seen.ranks and seen.kind in _OF_KERNEL):
        return replace(seen, text=both)
    if not seen.ranks:
        return replace(recorded, text=both)
    agreed = _among(seen.ranks, recorded.ranks)
    if agreed:
        return replace(seen, ranks=agreed, text=both)
    waiting = [trace.rank for trace in traces if any(not one.is_over for one in trace.collectives)]
    cleared = _among(seen.ranks, waiting)
    if cleared == seen.ranks:
        text = (
            f"{recorded.text}, by the flight recorder, which also shows that "
            f"{rank_names(cleared)} entered a collective that is not over; stacks: {seen.text}"
        )
        return replace(recorded, text=text)
    left = tuple(rank for rank in seen.ranks if rank not in cleared)
    return replace(seen, ranks=left, text=both)


def _among(ranks: Sequence[int], others: Collection[int]) -> tuple[int, ...]:
    return tuple(rank for rank in ranks if rank in others)
