"""What the ranks of a job do at one time: their processes, threads and Python stacks. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from holdfast.decisions.rank_accelerators import Accelerator
from holdfast.decisions.storage_waits import storage_of

_COLLECTIVES: Final = re.compile(
    r"/torch/distributed/(?:distributed_c10d|_functional_collectives)\.py$"
)
_BACKWARD: Final = re.compile(r"/torch/autograd/(?:graph|__init__)\.py$")
_DDP: Final = re.compile(r"/torch/nn/parallel/distributed\.py$|/torch/distributed/fsdp/")
_DATALOADER: Final = re.compile(r"/torch/utils/data/")
_FETCH: Final = re.compile(r"/torch/utils/data/_utils/fetch\.py$")
_WORKER: Final = re.compile(
    r"/torch/utils/data/_utils/worker\.py$|/multiprocessing/(?:process|popen_fork)\.py$"
)
"""Where the work of a process begins; a forked one has the frames of its parent beyond that."""

_WAITS: Final = re.compile(
    r"(?:^|/)(?:queue|threading|selectors|socket|multiprocessing/(?:queues|connection|synchronize)"
    r"|concurrent/futures/(?:_base|thread|process))\.py$"
)
"""Modules of Python in which a thread waits for others."""

_WAITING_FRAMES: Final = 3
"""Innermost frames in which such a wait is searched, as of ``Queue.get`` in ``Condition.wait``."""

_HELPER_FRAMES: Final = 20
HELPERS_LIMIT: Final = 16
"""Maximum number of helpers of a rank."""

_SIZES: Final = (
    (100, 16, 20), (100, 4, 20), (50, 1, 20), (25, 1, 8), (12, 1, 4), (12, 0, 0), (6, 0, 0),
    (0, 0, 0),
)  # fmt: skip
"""Maximum frames of a main thread, number of helpers, and frames of each, in order of preference.
The first helper explains most."""

STOPPED: Final = ("T", "t")
"""States of a process that was stopped by a signal or a debugger; see proc(5)."""

UNINTERRUPTIBLE: Final = "D"
LIBRARIES: Final = r"/(?:site-packages|dist-packages)/|/lib/python3[^/]*/|^<"
"""Pattern of the files that are not those of the program."""

_LIBRARIES: Final = re.compile(LIBRARIES)
_FOREIGN: Final = re.compile(r"/(?:site|dist)-packages/(?!torch/)")
"""Libraries other than PyTorch, such as the one of a model."""

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
class Helper:
    """Another thread of a rank, or the main thread of a process below it."""

    id: int
    """Number of the thread or the process in Linux; 0 if unknown."""

    name: str = ""
    """Name of the thread, or of the program that is not Python; empty if unknown."""

    is_process: bool = False
    state: str = ""
    """State as in /proc/PID/stat; empty if unknown."""

    wait_channel: str = ""
    frames: tuple[Frame, ...] = ()
    """Its Python stack, innermost frame first."""


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

    is_unread: bool = False
    """Whether the time of the inspection was over before its stack was read."""

    has_timed_out: bool = False
    """Whether it has ended because a collective in which it waited timed out."""

    helpers: tuple[Helper, ...] = ()
    """Other threads, and processes below it such as workers of a DataLoader, those first that
    explain most."""

    accelerator: Accelerator | None = None
    """State of its accelerator; None if it has none, or that is unknown."""


def activity(snapshot: RankSnapshot) -> Activity:
    """Return what the main thread of a rank does."""
    if snapshot.has_timed_out:
        return Activity.COLLECTIVE
    if not snapshot.frames:
        return Activity.UNKNOWN
    is_in_library = False
    for frame in snapshot.frames:
        if _DATALOADER.search(frame.file):
            return Activity.DATA
        if _COLLECTIVES.search(frame.file):
            return Activity.COLLECTIVE
        if _BACKWARD.search(frame.file):
            return Activity.BACKWARD
        if _DDP.search(frame.file):  # below it, a model of a library computes
            return Activity.OTHER if is_in_library else Activity.BACKWARD
        is_in_library |= _FOREIGN.search(frame.file) is not None
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


def shortened(snapshots: Sequence[RankSnapshot]) -> Iterator[tuple[RankSnapshot, ...]]:
    """Yield ever shorter forms of snapshots: less of each rank, then fewer ranks, at last none."""
    kept: tuple[RankSnapshot, ...] = ()
    for frames, helpers, of_helper in _SIZES:
        kept = tuple(
            replace(
                one,
                frames=one.frames[:frames],
                helpers=tuple(
                    replace(helper, frames=helper.frames[:of_helper])
                    for helper in one.helpers[:helpers]
                ),
            )
            for one in snapshots
        )
        yield kept
    while kept:
        kept = kept[: len(kept) // 2]
        yield kept


def is_in_collective(snapshot: RankSnapshot) -> bool:
    """Return whether a rank waits in a collective, so that nothing else of it matters."""
    return activity(snapshot) in (Activity.COLLECTIVE, Activity.BACKWARD)


def place(snapshot: RankSnapshot) -> str:
    """Return where a rank is: the innermost frame, and the innermost one of the program itself.

    For a rank that waits for another thread or for a process below it, what that does follows.
    """
    if not snapshot.frames:
        return snapshot.note or "an unknown place"
    own = own_frame(snapshot.frames)
    data = [frame for frame in snapshot.frames if _DATALOADER.search(frame.file)]
    inner = data[0] if data else snapshot.frames[0]
    name = f"the DataLoader, in {inner.text}" if data else inner.text
    called = name if own is None or own is inner else f"{name}, called by {own.text}"
    cause = awaited(snapshot)
    return called if cause is None else f"{called}; {helper_text(cause)}"


def awaited(snapshot: RankSnapshot) -> Helper | None:
    """Return the thread or process that a rank waits for; None if none stands out."""
    if not snapshot.frames or not _waits_for_helper(snapshot):
        return None
    return next((one for one in snapshot.helpers if _weight(one) > 0), None)


def ordered(helpers: Iterable[Helper]) -> tuple[Helper, ...]:
    """Return helpers within bounds, those first that explain most why a rank waits."""
    chosen = sorted(helpers, key=lambda one: (-_weight(one), not one.is_process, one.id))
    return tuple(replace(one, frames=one.frames[:_HELPER_FRAMES]) for one in chosen[:HELPERS_LIMIT])


def helper_text(helper: Helper) -> str:
    """Return what a helper does, such as ``its worker process 12 is in read (data.py:3)``."""
    frames = _own_part(helper.frames)
    own = own_frame(frames)
    name = (
        f"worker process {helper.id}" if helper.is_process else f"thread {helper.name or helper.id}"
    )
    does = f"is in {frames[0].text}" if frames else f"runs {helper.name or 'no Python code'}"
    if own is not None and own is not frames[0]:
        does += f", called by {own.text}"
    if storage := storage_of(helper.wait_channel):
        does += f", and waits for {storage} in {helper.wait_channel}"
    elif helper.state in STOPPED:
        does += ", and is stopped by a signal or a debugger"
    elif helper.state == UNINTERRUPTIBLE:
        does += f", in uninterruptible sleep in {helper.wait_channel or 'an unknown function'}"
    return f"its {name} {does}"


def _waits_for_helper(snapshot: RankSnapshot) -> bool:
    """Return whether a main thread waits for data, or for a queue, a lock or an event."""
    if activity(snapshot) is Activity.DATA:
        return True
    inner = snapshot.frames[:_WAITING_FRAMES]
    return any(_WAITS.search(frame.file) for frame in inner)


def _weight(helper: Helper) -> int:
    """Return how much a helper explains; 0 if it waits for work."""
    frames = _own_part(helper.frames)
    is_busy = own_frame(frames) is not None or any(_FETCH.search(one.file) for one in frames)
    if storage_of(helper.wait_channel):
        return 3
    if helper.state in (*STOPPED, UNINTERRUPTIBLE):
        return 2
    return int(is_busy and not _waits_for_work(frames))


def _waits_for_work(frames: Sequence[Frame]) -> bool:
    """Return whether a thread of a library waits for work in its queue."""
    own = own_frame(frames)
    return own is None and bool(frames) and _WAITS.search(frames[0].file) is not None


def _own_part(frames: Sequence[Frame]) -> Sequence[Frame]:
    """Return the frames of a worker without those that it has inherited by fork."""
    for index, frame in enumerate(frames):
        if _WORKER.search(frame.file):
            return frames[:index]
    return frames


def own_frame(frames: Sequence[Frame]) -> Frame | None:
    """Return the innermost frame of the program itself; None if all are of libraries."""
    return next((frame for frame in frames if not _LIBRARIES.search(frame.file)), None)


def collective(snapshots: Sequence[RankSnapshot]) -> str:
    """Return the name of the collective in which ranks wait, such as ``all_reduce``."""
    one = next((one for one in snapshots if not one.has_timed_out), snapshots[0])
    if one.has_timed_out:
        return "the collective that timed out"
    for frame in one.frames:
        if _COLLECTIVES.search(frame.file) and frame.function not in _INTERNAL:
            return frame.function
    return "the collectives of the backward pass"
