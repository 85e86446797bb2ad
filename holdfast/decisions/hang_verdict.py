"""Which rank a hung job waits for, decided from what all its ranks do at the same time. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from holdfast.decisions.rank_snapshots import (
    STOPPED,
    UNINTERRUPTIBLE,
    Activity,
    RankSnapshot,
    activity,
    awaited,
    collective,
    own_frame,
    place,
)
from holdfast.decisions.storage_waits import storage_of

_SHOWN_RANKS: Final = 8
"""Maximum number of ranks that are listed one by one."""

_POINT_TO_POINT: Final = frozenset({"send", "recv", "isend", "irecv", "batch_isend_irecv"})
"""Calls of PyTorch between two ranks. Stages of a pipeline are in different ones at any time."""

_SHOWN_CALLS: Final = 4
"""Maximum number of different calls that are listed."""


class VerdictKind(StrEnum):
    """Kind of a hang."""

    DEAD_PEER = "dead-peer"
    STOPPED = "stopped"
    UNINTERRUPTIBLE = "uninterruptible"
    STORAGE = "storage"
    ABSENT = "absent"
    """A rank never entered the collective, or is not in the line, in which the others wait."""

    DESYNCHRONIZED = "desynchronized"
    """Ranks wait in different collectives."""

    DATA = "data"
    """All ranks wait for data."""

    SAME = "same"
    """All ranks wait in the same collective, or some for single other ranks: the network, an
    accelerator, or a rank elsewhere."""

    UNKNOWN = "unknown"


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
    exited = [one for one in snapshots if one.pid is None and not one.has_timed_out]
    if exited:
        return _of(VerdictKind.DEAD_PEER, exited, snapshots, "has no process any more")
    if snapshots and all(one.has_timed_out for one in snapshots):
        text = f"all {len(snapshots)} ranks ended because a collective timed out"
        return Verdict(kind=VerdictKind.UNKNOWN, ranks=(), text=text)
    stopped = [snapshot for snapshot in snapshots if snapshot.state in STOPPED]
    if stopped:
        what = "is stopped by a signal such as SIGSTOP, or by a debugger"
        return _of(VerdictKind.STOPPED, stopped, snapshots, what)
    slow = [snapshot for snapshot in snapshots if storage_wait(snapshot)]
    others = [snapshot for snapshot in snapshots if snapshot not in slow]
    if slow and not any(activity(one) in (Activity.DATA, Activity.OTHER) for one in others):
        return _of_storage(slow, snapshots)
    blocked = [snapshot for snapshot in snapshots if snapshot.state == UNINTERRUPTIBLE]
    if len(blocked) == len(snapshots) > 1 and not any(one.wait_channel for one in blocked):
        text = f"all {len(snapshots)} ranks are in uninterruptible sleep: storage does not respond"
        return Verdict(kind=VerdictKind.STORAGE, ranks=(), text=text)
    if blocked:
        where = _most({snapshot.wait_channel for snapshot in blocked})
        what = f"is in uninterruptible sleep{where}: a device or a file system does not respond"
        return _of(VerdictKind.UNINTERRUPTIBLE, blocked, snapshots, what)
    return _by_stacks(snapshots)


def storage_wait(snapshot: RankSnapshot) -> str:
    """Return the kernel function in which a rank waits for storage; empty if it does not.

    For a rank that waits for a worker of its DataLoader, that of the worker.
    """
    if storage_of(snapshot.wait_channel):
        return snapshot.wait_channel
    cause = awaited(snapshot)
    return cause.wait_channel if cause is not None and storage_of(cause.wait_channel) else ""


def _of_storage(slow: Sequence[RankSnapshot], snapshots: Sequence[RankSnapshot]) -> Verdict:
    """Return the verdict on ranks that wait for storage while no other rank computes."""
    channel = storage_wait(slow[0])
    what = f"waits for {storage_of(channel)} in {channel}"
    if len(slow) == len(snapshots) > 1:
        everyone = f"all {len(slow)} ranks {_plural(what)}"
        read = next((one for one in slow if one.frames), None)
        where = "" if read is None else f"; rank {read.rank} is in {place(read)}"
        text = f"{everyone}: storage does not respond{where}"
        return Verdict(kind=VerdictKind.STORAGE, ranks=(), text=text)
    where = f": it is in {place(slow[0])}" if slow[0].frames else ""
    return _of(VerdictKind.STORAGE, slow, snapshots, f"{what}{where}")


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
        entered = collective(waiting or backward)
        what = f"never entered {entered}: it is in {place(absent[0])}"
        return _of(VerdictKind.ABSENT, absent, snapshots, what)
    elsewhere = _elsewhere(absent, snapshots)
    if elsewhere:
        usual = next(one for one in absent if one not in elsewhere)
        what = f"is in {place(elsewhere[0])}, while the others sleep in {place(usual)}"
        return _of(VerdictKind.ABSENT, elsewhere, snapshots, what)
    if absent:
        is_data = all(by_activity[snapshot.rank] is Activity.DATA for snapshot in absent)
        kind = VerdictKind.DATA if is_data else VerdictKind.UNKNOWN
        where = "waiting for data" if is_data else "outside of collectives"
        one = absent[0]
        text = f"{_names(absent)} {_are(absent)} {where}; rank {one.rank} is in {place(one)}"
        return Verdict(kind=kind, ranks=(), text=text)
    return _of_waiting(waiting, backward, snapshots)


def _elsewhere(
    outside: Sequence[RankSnapshot], snapshots: Sequence[RankSnapshot]
) -> Sequence[RankSnapshot]:
    """Return the ranks that are not in the line of the program in which most ranks sleep.

    ``wait`` of an asynchronous collective has no frame of PyTorch: the innermost one is that of the
    program. Empty if a rank could not be read, or if not all but a few are in one line.
    """
    if len(outside) < max(3, len(snapshots)):
        return ()
    at: dict[tuple[str, int], list[RankSnapshot]] = {}
    for one in outside:
        if one.state == "S" and (inner := own_frame(one.frames)) is one.frames[0]:
            at.setdefault((inner.file, inner.line), []).append(one)
    most = max(at.values(), key=len, default=[])
    rest = [one for one in outside if one not in most]
    return rest if 0 < len(rest) < len(most) else ()


def _of_waiting(
    waiting: Sequence[RankSnapshot],
    backward: Sequence[RankSnapshot],
    snapshots: Sequence[RankSnapshot],
) -> Verdict:
    """Return the verdict on ranks that all wait in collectives."""
    places: dict[tuple[str, str, int], list[RankSnapshot]] = {}
    for snapshot in sorted((*waiting, *backward), key=lambda one: one.rank):
        places.setdefault(_call(snapshot), []).append(snapshot)
    if len(places) > 1 and any(name in _POINT_TO_POINT for name, _, _ in places):
        return _of_point_to_point(list(places.values()))
    if len(places) > 1:
        return _desynchronized(list(places.values()))
    if waiting or backward:
        one = (*waiting, *backward)[0]
        text = (
            f"all {len(waiting) + len(backward)} ranks that could be read wait in "
            f"{collective([one])}{_caller(one)}: check the network and the accelerators"
        )
        return Verdict(kind=VerdictKind.SAME, ranks=(), text=text)
    notes = sorted({snapshot.note for snapshot in snapshots if snapshot.note})
    why = f": {notes[0]}" if notes else ""
    return Verdict(kind=VerdictKind.UNKNOWN, ranks=(), text=f"no rank could be read{why}")


def _of_point_to_point(by_call: Sequence[Sequence[RankSnapshot]]) -> Verdict:
    """Return the verdict on ranks that wait for single other ones: their calls blame none."""
    parts = [
        f"{_names(ranks)} {_are(ranks)} in {collective(ranks)}{_caller(ranks[0])}"
        for ranks in by_call[:_SHOWN_CALLS]
    ]
    text = (
        f"all ranks that could be read wait for others: {', '.join(parts)}: check that each send "
        f"has its receive, the network and the accelerators"
    )
    return Verdict(kind=VerdictKind.SAME, ranks=(), text=text)


def majority(counts: Sequence[int]) -> int | None:
    """Return the index of the largest count; None if two are equally large."""
    most = max(counts)
    return counts.index(most) if counts.count(most) == 1 else None


def _desynchronized(by_call: Sequence[Sequence[RankSnapshot]]) -> Verdict:
    """Return the verdict on ranks by the calls in which they wait; a tie blames none of them."""
    usual = majority([len(ranks) for ranks in by_call])
    others = [ranks for place, ranks in enumerate(by_call) if place != usual]
    parts = [
        f"{_names(ranks)} {_are(ranks)} in {collective(ranks)}{_caller(ranks[0])}"
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
    if others:
        end = "; the other rank waits" if others == 1 else f"; the other {others} ranks wait"
    nodes = ", ".join(dict.fromkeys(snapshot.node for snapshot in named))
    verb = what if len(named) == 1 else _plural(what)
    ranks = tuple(sorted(snapshot.rank for snapshot in named))
    return Verdict(kind=kind, ranks=ranks, text=f"{_names(named)} on {nodes} {verb}{end}")


def _plural(what: str) -> str:
    for one, many in (("is ", "are "), ("has ", "have "), ("waits ", "wait ")):
        if what.startswith(one):
            what = many + what.removeprefix(one)
    return what.replace(": it is in ", ": the first is in ")


def _are(snapshots: Sequence[RankSnapshot]) -> str:
    return "is" if len(snapshots) == 1 else "are"


def _names(snapshots: Sequence[RankSnapshot]) -> str:
    return rank_names(snapshot.rank for snapshot in snapshots)


def _call(snapshot: RankSnapshot) -> tuple[str, str, int]:
    """Return the collective of a rank and the line of the program that called it."""
    own = own_frame(snapshot.frames)
    name = collective([snapshot])
    return (name, own.file, own.line) if own is not None else (name, "", 0)


def _caller(snapshot: RankSnapshot) -> str:
    own = own_frame(snapshot.frames)
    return f", called by {own.text}" if own is not None else ""


def _most(channels: Iterable[str]) -> str:
    known = sorted(channel for channel in channels if channel)
    return f" in {known[0]}" if known else ""
