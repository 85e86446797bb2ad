"""Which rank a hung job waits for, decided from what all its ranks do at the same time. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_SHOWN_RANKS: Final = 8
"""Maximum number of ranks that are listed one by one."""

_SHOWN_CALLS: Final = 4
"""Maximum number of different calls that are listed."""

_STOPPED: Final = ("T", "t")
"""States of a process that was stopped by a signal or a debugger; see proc(5)."""

_UNINTERRUPTIBLE: Final = "D"

_COLLECTIVES: Final = re.compile(
    r"/torch/distributed/(?:distributed_c10d|_functional_collectives)\.py$"
)
_BACKWARD: Final = re.compile(r"/torch/autograd/(?:graph|__init__)\.py$")
_DDP: Final = re.compile(r"/torch/nn/parallel/distributed\.py$|/torch/distributed/fsdp/")
_DATALOADER: Final = re.compile(r"/torch/utils/data/")
_LIBRARIES: Final = re.compile(r"/(?:site-packages|dist-packages)/|/lib/python3[^/]*/|^<")
_INTERNAL: Final = frozenset({"wrapper", "_decorate", "inner", "__torch_function__"})
"""Functions of PyTorch around a collective that do not name it."""


class Activity(StrEnum):
    """What the main thread of a rank does."""

    COLLECTIVE = "collective"
    BACKWARD = "backward"
    """Backward pass; DDP and FSDP wait for their collectives there."""

    DATA = "data"
    """Waits for the next batch of a DataLoader."""

    OTHER = "other"
    UNKNOWN = "unknown"
    """Its stack could not be read."""


class VerdictKind(StrEnum):
    """Kind of a hang."""

    DEAD_PEER = "dead-peer"
    STOPPED = "stopped"
    UNINTERRUPTIBLE = "uninterruptible"
    STORAGE = "storage"
    ABSENT = "absent"
    """A rank never entered the collective in which the others wait."""

    DESYNCHRONIZED = "desynchronized"
    """Ranks wait in different collectives."""

    DATA = "data"
    """All ranks wait for data."""

    SAME = "same"
    """All ranks wait in the same collective: the network, an accelerator, or a rank elsewhere."""

    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSamples:
    """Samples of one rank in one window: what its main thread did."""

    rank: int
    node: str
    all: Mapping[Activity, int]
    """Samples at fixed intervals."""

    running: Mapping[Activity, int]
    """Samples of a second series, without those in which the thread slept."""

    taken: int
    """Number of samples of the second series, with those in which the thread slept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One frame of a Python stack."""

    function: str
    file: str
    line: int

    @property
    def text(self) -> str:
        """Return the function with its place, such as ``get (queue.py:171)``."""
        return f"{self.function} ({self.file.rpartition('/')[2]}:{self.line})"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSnapshot:
    """What one rank did at one time."""

    rank: int
    node: str
    pid: int | None
    """None if it has no process any more."""

    state: str = ""
    """State of its main thread as in /proc/PID/stat; empty if unknown."""

    wait_channel: str = ""
    """Kernel function in which it sleeps; empty if unknown."""

    frames: tuple[Frame, ...] = ()
    """Stack of its main thread, innermost frame first."""

    note: str = ""
    """Why there is no stack; empty if there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Why a job hangs."""

    kind: VerdictKind
    ranks: tuple[int, ...]
    """Ranks that the others wait for; empty if none stands out."""

    text: str


def verdict(snapshots: Sequence[RankSnapshot]) -> Verdict:
    """Return which rank the others wait for, and what it does.

    Args:
        snapshots: one of each rank, taken within a few seconds of each other.

    """
    exited = [snapshot for snapshot in snapshots if snapshot.pid is None]
    if exited:
        return _of(VerdictKind.DEAD_PEER, exited, snapshots, "has no process any more")
    stopped = [snapshot for snapshot in snapshots if snapshot.state in _STOPPED]
    if stopped:
        what = "is stopped by a signal such as SIGSTOP, or by a debugger"
        return _of(VerdictKind.STOPPED, stopped, snapshots, what)
    blocked = [snapshot for snapshot in snapshots if snapshot.state == _UNINTERRUPTIBLE]
    if blocked and len(blocked) == len(snapshots) and len(snapshots) > 1:
        where = _most({snapshot.wait_channel for snapshot in blocked})
        asleep = f"all {len(snapshots)} ranks are in uninterruptible sleep{where}"
        text = f"{asleep}: storage does not respond"
        return Verdict(kind=VerdictKind.STORAGE, ranks=(), text=text)
    if blocked:
        where = _most({snapshot.wait_channel for snapshot in blocked})
        what = f"is in uninterruptible sleep{where}: a device or a file system does not respond"
        return _of(VerdictKind.UNINTERRUPTIBLE, blocked, snapshots, what)
    return _by_stacks(snapshots)


def activity(snapshot: RankSnapshot) -> Activity:
    """Return what the main thread of a rank does."""
    if not snapshot.frames:
        return Activity.UNKNOWN
    for frame in snapshot.frames:
        if _DATALOADER.search(frame.file):
            return Activity.DATA
        if _COLLECTIVES.search(frame.file):
            return Activity.COLLECTIVE
        if _BACKWARD.search(frame.file) or _DDP.search(frame.file):
            return Activity.BACKWARD
        if not _LIBRARIES.search(frame.file):
            return Activity.OTHER
    return Activity.OTHER


def groups(snapshots: Iterable[RankSnapshot]) -> Mapping[tuple[str, ...], tuple[int, ...]]:
    """Return the ranks by stack, the largest group first; lines of one function are one stack."""
    found: dict[tuple[str, ...], list[int]] = {}
    for snapshot in snapshots:
        stack = tuple(f"{frame.function} ({frame.file})" for frame in snapshot.frames)
        found.setdefault(stack or (snapshot.note or "no stack",), []).append(snapshot.rank)
    ordered = sorted(found.items(), key=lambda one: (-len(one[1]), one[1]))
    return {stack: tuple(ranks) for stack, ranks in ordered}


def place(snapshot: RankSnapshot) -> str:
    """Return where a rank is: the innermost frame, and the innermost one of the program itself."""
    if not snapshot.frames:
        return snapshot.note or "an unknown place"
    own = own_frame(snapshot.frames)
    data = [frame for frame in snapshot.frames if _DATALOADER.search(frame.file)]
    inner = data[0] if data else snapshot.frames[0]
    name = f"the DataLoader, in {inner.text}" if data else inner.text
    return name if own is None or own is inner else f"{name}, called by {own.text}"


def own_frame(frames: Sequence[Frame]) -> Frame | None:
    """Return the innermost frame of the program itself; None if all are of libraries."""
    return next((frame for frame in frames if not _LIBRARIES.search(frame.file)), None)


def rank_names(numbers: Iterable[int]) -> str:
    """Return ranks for people to read, such as ``ranks 1, 2``."""
    ranks = sorted(numbers)
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = ", ".join(map(str, ranks[:_SHOWN_RANKS]))
    more = len(ranks) - _SHOWN_RANKS
    return f"ranks {shown}" + (f" and {more} more" if more > 0 else "")


def _by_stacks(snapshots: Sequence[RankSnapshot]) -> Verdict:
    """Return the verdict on ranks of which all run or sleep as usual."""
    by_activity = {snapshot.rank: activity(snapshot) for snapshot in snapshots}
    waiting = [
        snapshot for snapshot in snapshots if by_activity[snapshot.rank] is Activity.COLLECTIVE
    ]
    backward = [
        snapshot for snapshot in snapshots if by_activity[snapshot.rank] is Activity.BACKWARD
    ]
    absent = [
        snapshot
        for snapshot in snapshots
        if by_activity[snapshot.rank] in (Activity.DATA, Activity.OTHER)
    ]
    if absent and (waiting or backward):
        entered = _collective(waiting or backward)
        what = f"never entered {entered}: it is in {place(absent[0])}"
        return _of(VerdictKind.ABSENT, absent, snapshots, what)
    if absent:
        is_data = all(by_activity[snapshot.rank] is Activity.DATA for snapshot in absent)
        kind = VerdictKind.DATA if is_data else VerdictKind.UNKNOWN
        where = "waiting for data" if is_data else "outside of collectives"
        one = absent[0]
        text = f"{_names(absent)} {_are(absent)} {where}; rank {one.rank} is in {place(one)}"
        return Verdict(kind=kind, ranks=(), text=text)
    return _of_waiting(waiting, backward, snapshots)


def _of_waiting(
    waiting: Sequence[RankSnapshot],
    backward: Sequence[RankSnapshot],
    snapshots: Sequence[RankSnapshot],
) -> Verdict:
    """Return the verdict on ranks that all wait in collectives."""
    places: dict[tuple[str, str, int], list[RankSnapshot]] = {}
    for snapshot in sorted((*waiting, *backward), key=lambda one: one.rank):
        places.setdefault(_call(snapshot), []).append(snapshot)
    if len(places) > 1:
        return _desynchronized(list(places.values()))
    if waiting or backward:
        one = (*waiting, *backward)[0]
        text = (
            f"all {len(waiting) + len(backward)} ranks that could be read wait in "
            f"{_collective([one])}{_caller(one)}: check the network and the accelerators"
        )
        return Verdict(kind=VerdictKind.SAME, ranks=(), text=text)
    notes = sorted({snapshot.note for snapshot in snapshots if snapshot.note})
    why = f": {notes[0]}" if notes else ""
    return Verdict(kind=VerdictKind.UNKNOWN, ranks=(), text=f"no rank could be read{why}")


def majority(counts: Sequence[int]) -> int | None:
    """Return the index of the largest count; None if two are equally large."""
    most = max(counts)
    return counts.index(most) if counts.count(most) == 1 else None


def _desynchronized(by_call: Sequence[Sequence[RankSnapshot]]) -> Verdict:
    """Return the verdict on ranks by the calls in which they wait; a tie blames none of them."""
    usual = majority([len(ranks) for ranks in by_call])
    others = [ranks for place, ranks in enumerate(by_call) if place != usual]
    parts = [
        f"{_names(ranks)} {_are(ranks)} in {_collective(ranks)}{_caller(ranks[0])}"
        for ranks in (*others[:_SHOWN_CALLS], *([] if usual is None else [by_call[usual]]))
    ]
    but = ", and " if usual is None else ", but "
    named = [] if usual is None else [one.rank for ranks in others for one in ranks]
    text = f"{', '.join(parts[:-1])}{but}{parts[-1]}: the ranks run different code"
    return Verdict(kind=VerdictKind.DESYNCHRONIZED, ranks=tuple(sorted(named)), text=text)


def _of(
    kind: VerdictKind, named: Sequence[RankSnapshot], snapshots: Sequence[RankSnapshot], what: str
) -> Verdict:
    others = len(snapshots) - len(named)
    end = ""
    if others and kind is not VerdictKind.STORAGE:
        end = "; the other rank waits" if others == 1 else f"; the other {others} ranks wait"
    nodes = ", ".join(dict.fromkeys(snapshot.node for snapshot in named))
    verb = what if len(named) == 1 else _plural(what)
    ranks = tuple(sorted(snapshot.rank for snapshot in named))
    return Verdict(kind=kind, ranks=ranks, text=f"{_names(named)} on {nodes} {verb}{end}")


def _plural(what: str) -> str:
    for one, many in (("is ", "are "), ("has ", "have ")):
        if what.startswith(one):
            return many + what.removeprefix(one)
    return what.replace(": it is in ", ": the first is in ")


def _are(snapshots: Sequence[RankSnapshot]) -> str:
    return "is" if len(snapshots) == 1 else "are"


def _names(snapshots: Sequence[RankSnapshot]) -> str:
    return rank_names(snapshot.rank for snapshot in snapshots)


def _collective(snapshots: Sequence[RankSnapshot]) -> str:
    """Return the name of the collective in which ranks wait, such as ``all_reduce``."""
    for frame in snapshots[0].frames:
        if _COLLECTIVES.search(frame.file) and frame.function not in _INTERNAL:
            return frame.function
    return "the collectives of the backward pass"


def _call(snapshot: RankSnapshot) -> tuple[str, str, int]:
    """Return the collective of a rank and the line of the program that called it."""
    own = own_frame(snapshot.frames)
    name = _collective([snapshot])
    return (name, own.file, own.line) if own is not None else (name, "", 0)


def _caller(snapshot: RankSnapshot) -> str:
    own = own_frame(snapshot.frames)
    return f", called by {own.text}" if own is not None else ""


def _most(channels: Iterable[str]) -> str:
    known = sorted(channel for channel in channels if channel)
    return f" in {known[0]}" if known else ""
