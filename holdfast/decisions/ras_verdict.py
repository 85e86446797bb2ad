"""What NCCL's RAS subsystem reports of a hang: ranks that do not respond, or are behind. Pure.

The fields are those of its JSON output (NCCL 2.28.7 and newer, ``docs/userguide/source/
troubleshooting/ras.rst``). A rank that only waits in a collective still responds, and shows by its
counts; a stopped process does not respond.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from holdfast.decisions.hang_verdict import Verdict, VerdictKind, rank_names
from holdfast.decisions.rank_snapshots import RankSnapshot

_SHOWN_COUNTS: Final = 4
_NAMED_RANKS: Final = 128
"""Maximum number of ranks of a verdict. All but one rank of a large job may be behind, and a
message between launchers has 64 KiB for everything that was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RasRank:
    """Rank of a communicator."""

    rank: int
    """Its number in the communicator."""

    pid: int = 0
    is_missing: bool = False
    """Whether its process does not respond, or is considered dead."""

    counts: Mapping[str, int] = field(default_factory=dict)
    """Number of collectives that it has begun, by kind such as ``AllReduce``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RasCommunicator:
    """Communicator of NCCL."""

    size: int
    ranks: tuple[RasRank, ...]


def ras_verdict(
    before: Sequence[RasCommunicator],
    after: Sequence[RasCommunicator],
    snapshots: Sequence[RankSnapshot],
) -> Verdict | None:
    """Return what two reports show of a hang; None if they show nothing.

    The largest communicator counts: its ranks are those of the job. Another job of the node may
    have the same address of RAS, so one of its processes has to be a rank of this job.

    Args:
        before: a report.
        after: a report a second later: counts that have changed are no hang.
        snapshots: ranks of this node.

    """
    known = max(after, key=lambda one: one.size, default=None)
    first = max(before, key=lambda one: one.size, default=None)
    if known is None or first is None or not _is_own(known, snapshots):
        return None
    missing = sorted(one.rank for one in known.ranks if one.is_missing)
    if missing:
        does = "does not respond" if len(missing) == 1 else "do not respond"
        text = f"{rank_names(missing)} {does} to NCCL"
        return Verdict(kind=VerdictKind.DEAD_PEER, ranks=tuple(missing[:_NAMED_RANKS]), text=text)
    if [one.counts for one in first.ranks] != [one.counts for one in known.ranks]:
        return None
    return _behind(known)


def _is_own(known: RasCommunicator, snapshots: Sequence[RankSnapshot]) -> bool:
    numbers = {one.pid: one.rank for one in known.ranks if one.pid}
    own = [one for one in snapshots if one.pid in numbers]
    return bool(own) and all(numbers[one.pid or 0] == one.rank for one in own)


def _behind(known: RasCommunicator) -> Verdict | None:
    """Return the verdict on ranks that have begun fewer collectives of a kind than others."""
    for kind in sorted({kind for one in known.ranks for kind in one.counts}):
        counts = {one.rank: one.counts.get(kind, 0) for one in known.ranks}
        most = max(counts.values())
        behind = sorted(rank for rank, count in counts.items() if count < most)
        if not behind:
            continue
        shown = ", ".join(str(counts[rank]) for rank in behind[:_SHOWN_COUNTS])
        have = "has" if len(behind) == 1 else "have"
        text = f"{rank_names(behind)} {have} begun {shown} {kind}, the others {most}"
        return Verdict(kind=VerdictKind.ABSENT, ranks=tuple(behind[:_NAMED_RANKS]), text=text)
    return None
