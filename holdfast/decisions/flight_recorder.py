"""What the flight recorders of the ranks show of a hang: PyTorch's traces of collectives. Pure.

The method is that of ``torch.distributed.flight_recorder``: collectives are compared by group and
sequence number; after the first mismatch of a group, its later ones are not trusted.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from holdfast.decisions.hang_verdict import Verdict, VerdictKind, majority, rank_names
from holdfast.decisions.kernel_lines import NodeKernelLog
from holdfast.decisions.rank_snapshots import Frame, RankSnapshot, own_frame

DUMP_PREFIX: Final = "rank_"
PIPE_PREFIX: Final = "request_"
"""Names of files, with the rank: its dump, and with ``.pipe`` the pipe that requests one."""

DUMP_VARIABLES: Final = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
PIPE_VARIABLE: Final = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
_ALL: Final = "default_pg"
"""Group of all ranks."""

_UNEQUAL_SIZES: Final = ("all_to_all", "alltoall", "gather", "scatter")
"""Collectives whose ranks may have different sizes."""

_SHOWN_VALUES: Final = 4
"""Maximum number of different values that are listed, such as sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpFiles:
    """Files of the flight recorders of a job, without the rank at the end of each."""

    dump: str
    """Path of a dump without the rank."""

    pipe: str
    """Path of the pipe that requests a dump, without the rank and ``.pipe``."""

    @classmethod
    def in_folder(cls, folder: str) -> "DumpFiles":
        """Return the files that ``recorder_environment`` names unless the user has set others."""
        return cls(dump=f"{folder}/{DUMP_PREFIX}", pipe=f"{folder}/{PIPE_PREFIX}")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFindings:
    """Snapshots of the ranks of a job."""

    snapshots: tuple[RankSnapshot, ...] = ()
    traces: tuple[RankTrace, ...] = ()
    """Of the ranks with a dump."""

    ras: Verdict | None = None
    """What NCCL's RAS reports; None if there is no report, or it shows nothing."""

    kernel: tuple[NodeKernelLog, ...] = ()
    """Of the nodes of the ranks."""


def after_timeouts(found: RankFindings, timed_out: Collection[int] = ()) -> RankFindings:
    """Return findings in which ranks that a timeout has ended count as waiting for the others.

    A watchdog dumps the flight recorder before it ends a rank: one that has ended with a dump was
    in a collective, too.

    Args:
        found: what the ranks do.
        timed_out: ranks that are known to have ended by the timeout of a collective.

    """
    waited = {*timed_out, *(one.rank for one in found.traces)}
    snapshots = tuple(
        replace(one, has_timed_out=True, note="ended: its collective timed out")
        if one.pid is None and one.rank in waited
        else one
        for one in found.snapshots
    )
    return replace(found, snapshots=snapshots)


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
    waits = {rank: _first_open(own) for rank, own in by_rank.items()}
    return _absent(by_rank, waits, group) or _unfinished(waits)


def _is_member(trace: RankTrace, group: str, traces: Sequence[RankTrace]) -> bool:
    known = next((one.members[group] for one in traces if group in one.members), None)
    if known is not None:
        return trace.rank in known
    return group == _ALL or any(one.group == group for one in trace.collectives)


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


def _first_open(own: Mapping[int, Collective]) -> Collective | None:
    """Return the first collective that is not over: those after it were only enqueued."""
    return next((own[number] for number in sorted(own) if not own[number].is_over), None)


def _absent(
    by_rank: Mapping[int, Mapping[int, Collective]],
    waits: Mapping[int, Collective | None],
    group: str,
) -> Verdict | None:
    """Return the verdict on ranks that have not entered the collective that others wait in."""
    last = {rank: max(own, default=0) for rank, own in by_rank.items()}
    missed = min(last.values()) + 1
    awaited = min(
        (one for one in waits.values() if one is not None),
        key=lambda one: one.sequence,
        default=None,
    )
    if awaited is None or awaited.sequence != missed:
        return None
    behind = sorted(rank for rank, number in last.items() if number < missed)
    text = f"{rank_names(behind)} never entered {awaited.text} of {group}{_caller(awaited)}"
    return Verdict(kind=VerdictKind.ABSENT, ranks=tuple(behind), text=text)


def _unfinished(waits: Mapping[int, Collective | None]) -> Verdict | None:
    """Return the verdict on ranks that are all in one collective; None if they are not."""
    found = [one for one in waits.values() if one is not None]
    if not found or len(found) < len(waits) or len({one.sequence for one in found}) > 1:
        return None
    one = found[0]
    text = (
        f"all {len(found)} ranks with a dump entered {one.text} of {one.group}{_caller(one)}, and "
        "none left it: check the network and the accelerators"
    )
    return Verdict(kind=VerdictKind.SAME, ranks=(), text=text)


def summaries(
    traces: Sequence[RankTrace], *, over: int, waiting: int, with_members: bool = True
) -> tuple[RankTrace, ...]:
    """Return the part of traces that the verdict depends on, to send it to another node.

    Of each group, the first collectives that are not over, with their callers, and the last ones
    before these. The members of a group are in the first of the traces that has them.

    Args:
        traces: traces of the ranks of one node.
        over: maximum number of collectives of a rank and a group that are over.
        waiting: maximum number of those that are not.
        with_members: whether the members of groups are kept.

    """
    shorter: list[RankTrace] = []
    listed: set[str] = set()
    for trace in traces:
        groups = dict.fromkeys(one.group for one in trace.collectives)
        kept = [
            one
            for group in groups
            for one in _around_open(trace, group, over=over, waiting=waiting)
        ]
        members = {
            group: ranks
            for group, ranks in trace.members.items()
            if with_members and group != _ALL and group in groups and group not in listed
        }
        listed |= members.keys()
        shorter.append(RankTrace(rank=trace.rank, collectives=tuple(kept), members=members))
    return tuple(shorter)


def _around_open(trace: RankTrace, group: str, *, over: int, waiting: int) -> Sequence[Collective]:
    own = sorted(
        (one for one in trace.collectives if one.group == group), key=lambda one: one.sequence
    )
    first = next((at for at, one in enumerate(own) if not one.is_over), len(own))
    before = [replace(one, frames=()) for one in own[max(0, first - over) : first]]
    return [*before, *(replace(one, frames=_own(one)) for one in own[first : first + waiting])]


def _own(one: Collective) -> tuple[Frame, ...]:
    own = own_frame(one.frames)
    return () if own is None else (own,)


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


def recorder_environment(given: Mapping[str, str], folder: str) -> dict[str, str]:
    """Return variables with which ranks dump their recorders into a folder, also on request.

    Args:
        given: environment of the ranks; what the user has set stays.
        folder: directory for the dumps.

    """
    files = DumpFiles.in_folder(folder)
    own = {PIPE_VARIABLE: files.pipe}
    if not any(name in given for name in DUMP_VARIABLES):
        own |= dict.fromkeys(DUMP_VARIABLES, files.dump)
    unset = {name: value for name, value in own.items() if name not in given}
    return {**recorder_defaults(given), **unset}


def dump_files(given: Mapping[str, str], folder: str) -> DumpFiles:
    """Return where the ranks dump: where the user has set it, or else in the folder.

    Of both names of the variable, PyTorch prefers the newer one.

    Args:
        given: environment of the ranks before ``recorder_environment``.
        folder: see there.

    """
    own = DumpFiles.in_folder(folder)
    dump = next((given[name] for name in DUMP_VARIABLES if given.get(name)), own.dump)
    return DumpFiles(dump=dump, pipe=given.get(PIPE_VARIABLE) or own.pipe)
