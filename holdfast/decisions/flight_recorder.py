"""What the flight recorders of the ranks show of a hang: PyTorch's traces of collectives. Pure.

The method is that of ``torch.distributed.flight_recorder``: collectives are compared by group and
sequence number; after the first mismatch of a group, its later ones are not trusted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.decisions.hang_verdict import Verdict, VerdictKind, majority, rank_names
from holdfast.decisions.rank_snapshots import Frame, own_frame

_UNEQUAL_SIZES: Final = ("all_to_all", "alltoall", "gather", "scatter")
"""Collectives whose ranks may have different sizes."""

_SHOWN_VALUES: Final = 4
"""Maximum number of different values that are listed, such as sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """Collective that a rank has recorded."""

    group: str
    sequence: int
    operation: str
    """Name such as ``nccl:all_reduce``."""

    sizes: tuple[tuple[int, ...], ...] = ()
    """Shapes of the inputs."""

    dtypes: tuple[str, ...] = ()
    is_over: bool = False
    """Whether it has completed."""

    frames: tuple[Frame, ...] = ()
    """Python stack of its call, innermost frame first."""

    @property
    def text(self) -> str:
        """Return operation and number, such as ``all_reduce 1042``."""
        return f"{self.operation.rpartition(':')[2]} {self.sequence}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTrace:
    """Flight recorder of one rank."""

    rank: int
    collectives: tuple[Collective, ...]
    """Oldest first; the recorder is a ring."""

    members: Mapping[str, frozenset[int]]
    """Ranks of the groups, if known."""


def combined(seen: Verdict, recorded: Verdict | None) -> Verdict:
    """Return the verdict on stacks and traces; the traces decide if the stacks name no rank."""
    if recorded is None:
        return seen
    text = f"{seen.text}; flight recorder: {recorded.text}"
    decides = recorded if recorded.ranks and not seen.ranks else seen
    return Verdict(kind=decides.kind, ranks=decides.ranks, text=text)


def recorded_verdict(traces: Sequence[RankTrace]) -> Verdict | None:
    """Return what the traces show of a hang; None if they show nothing.

    Args:
        traces: traces of at least two ranks, taken while the job hangs.

    """
    groups = dict.fromkeys(one.group for trace in traces for one in trace.collectives)
    found = [_of_group(group, traces) for group in groups]
    named = [one for one in found if one is not None]
    return next((one for one in named if one.ranks), next(iter(named), None))


def _of_group(group: str, traces: Sequence[RankTrace]) -> Verdict | None:
    by_rank = {
        trace.rank: {one.sequence: one for one in trace.collectives if one.group == group}
        for trace in traces
        if _is_member(trace, group, traces)
    }
    if len(by_rank) < 2:
        return None
    started = {rank: own for rank, own in by_rank.items() if own}
    common = set.intersection(*map(set, started.values())) if started else set()
    for sequence in sorted(common):
        at_once = {rank: own[sequence] for rank, own in started.items()}
        if (mismatch := _mismatch(at_once)) is not None:
            return mismatch
    return _absent(by_rank, group) or _unfinished(started)


def _is_member(trace: RankTrace, group: str, traces: Sequence[RankTrace]) -> bool:
    known = next((one.members[group] for one in traces if group in one.members), None)
    if known is not None:
        return trace.rank in known
    return group == "default_pg" or any(one.group == group for one in trace.collectives)


def _mismatch(at_once: Mapping[int, Collective]) -> Verdict | None:
    """Return the verdict on ranks whose collectives of one number do not fit; None if they do."""
    for what, key in (
        ("call", _operation),
        ("have the data type", _dtypes),
        ("have sizes", _sizes),
    ):
        values = {rank: key(one) for rank, one in at_once.items()}
        if len(set(values.values())) < 2:
            continue
        by_value: dict[str, list[int]] = {}
        for rank, value in sorted(values.items()):
            by_value.setdefault(value, []).append(rank)
        return _disagreement(what, by_value, at_once)
    return None


def _disagreement(
    what: str, by_value: Mapping[str, Sequence[int]], at_once: Mapping[int, Collective]
) -> Verdict:
    """Return the verdict on ranks whose collectives differ in one value; a tie blames none."""
    shares = list(by_value.items())
    usual = majority([len(ranks) for _, ranks in shares])
    rest = [] if usual is None else [shares.pop(usual)]
    parts = [
        f"{rank_names(ranks)} {_agreed(what, ranks)} {value}{_caller(at_once[ranks[0]])}"
        for value, ranks in shares[:_SHOWN_VALUES]
    ]
    for value, ranks in rest:
        parts.append(f"the other ranks {what} {value}{_caller(at_once[ranks[0]])}")
    first = at_once[shares[0][1][0]]
    where = first.text if rest else f"collective {first.sequence}"
    named = [rank for _, ranks in shares for rank in ranks] if rest else []
    text = (
        f"{', '.join(parts[:-1])}, {'but' if rest else 'and'} {parts[-1]}, in "
        f"{where} of {first.group}: the ranks run different code, "
        "or different data"
    )
    return Verdict(kind=VerdictKind.DESYNCHRONIZED, ranks=tuple(sorted(named)), text=text)


def _absent(by_rank: Mapping[int, Mapping[int, Collective]], group: str) -> Verdict | None:
    """Return the verdict on ranks that have not entered the collective that others wait in."""
    last = {rank: max(own, default=0) for rank, own in by_rank.items()}
    ahead = max(last.values())
    behind = sorted(rank for rank, number in last.items() if number < ahead)
    if not behind:
        return None
    missed = min(last.values()) + 1
    behind = [rank for rank in behind if last[rank] < missed]
    waits = next((own[missed] for own in by_rank.values() if missed in own), None)
    if waits is None or waits.is_over:
        return None
    text = f"{rank_names(behind)} never entered {waits.text} of {group}{_caller(waits)}"
    return Verdict(kind=VerdictKind.ABSENT, ranks=tuple(behind), text=text)


def _unfinished(by_rank: Mapping[int, Mapping[int, Collective]]) -> Verdict | None:
    newest = {rank: own[max(own)] for rank, own in by_rank.items()}
    if not newest or any(one.is_over for one in newest.values()):
        return None
    one = next(iter(newest.values()))
    text = (
        f"all ranks entered {one.text} of {one.group}{_caller(one)}, and none left it: check the "
        "network and the accelerators"
    )
    return Verdict(kind=VerdictKind.SAME, ranks=(), text=text)


def _operation(one: Collective) -> str:
    return one.operation.rpartition(":")[2]


def _dtypes(one: Collective) -> str:
    return ", ".join(one.dtypes)


def _sizes(one: Collective) -> str:
    if any(name in one.operation for name in _UNEQUAL_SIZES):
        return ""
    return ", ".join(str(list(size)) for size in one.sizes)


def _agreed(what: str, ranks: Sequence[int]) -> str:
    if len(ranks) > 1:
        return what
    return what.replace("have", "has") if "have" in what else f"{what}s"


def _caller(one: Collective) -> str:
    own = own_frame(one.frames)
    return f", called by {own.text}" if own is not None else ""


def recorder_defaults(given: Mapping[str, str]) -> dict[str, str]:
    """Return variables with which ranks record their collectives, unless the user has set them.

    The recorder is off by default up to torch 2.10; 2000 is the default since. The names that start
    with ``TORCH_NCCL`` are those of earlier releases.
    """
    sizes = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
    own = {} if any(name in given for name in sizes) else dict.fromkeys(sizes, "2000")
    on_timeout = "TORCH_NCCL_DUMP_ON_TIMEOUT"
    return own if on_timeout in given else {**own, on_timeout: "1"}
