"""Looks at the processes of ranks: states, wait channels and Python stacks, in parallel.

Of a rank, all threads are looked at, and unless it waits in a collective, the processes below it,
too, such as workers of a DataLoader.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Final

from holdfast.adapters.host.fault_stacks import requested_threads
from holdfast.adapters.host.kernel_warnings import DEVICE
from holdfast.adapters.host.py_spy import ThreadDump, dumped_threads
from holdfast.decisions.hang_evidence import RankEvidence
from holdfast.decisions.inspection_tries import LIMIT
from holdfast.decisions.rank_snapshots import (
    HELPERS_LIMIT,
    UNINTERRUPTIBLE,
    Helper,
    RankSnapshot,
    is_in_collective,
    ordered,
)
from holdfast.kit.masking import masked_arguments, masked_environment
from holdfast.kit.processes import descendants

_REST_S: Final = 3.0
"""Time of an inspection that is left for states and the verdict once stacks are read."""

_STATE_PAUSE_S: Final = 0.5
"""Time between two samples of the state, if reading the stack takes less."""

_CHILDREN: Final = 4
"""Processes below a rank whose stacks are read at the same time."""

_WORKERS: Final = 16
_ENVIRONMENT_LIMIT: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRanks:
    """A node of a job, with the process below which its ranks run."""

    node_rank: int
    node: str
    root: int | None
    """None if no process of the node runs any more."""

    spare: frozenset[int] = frozenset()
    """Processes that are no ranks, such as the agent."""

    local_world_size: int = 1
    kernel_logs: tuple[Path, ...] = (DEVICE,)
    """Kernel logs of the node."""


def take_snapshots(
    nodes: Sequence[NodeRanks], limit: timedelta = LIMIT
) -> tuple[RankSnapshot, ...]:
    """Return a snapshot of each rank of a job, in rank order, 2 seconds before ``limit``."""
    deadline = time.monotonic() + limit.total_seconds() - _REST_S
    return _snapshots([one for node in nodes for one in _ranks(node)], deadline)


def rank_processes(nodes: Sequence[NodeRanks]) -> tuple[tuple[int, str, int], ...]:
    """Return rank, node and process of each rank that runs, in rank order."""
    found = [
        (rank, node.node, pid)
        for node in nodes
        if node.root is not None
        for rank, pid in _by_rank(_below(node)).items()
    ]
    return tuple(sorted(found))


def take_snapshots_of(
    node: str, started: Mapping[int, int], deadline: float
) -> tuple[RankSnapshot, ...]:
    """Return a snapshot of each rank of a node, in rank order, about a second after a deadline.

    Args:
        node: the node.
        started: process that was started for each rank; 0 if there is none any more.
        deadline: monotonic time after which no more stacks are read.

    """
    return _snapshots(
        [(rank, node, python_process(rank, pid) if pid else None) for rank, pid in started.items()],
        deadline,
    )


def command_line(pid: int) -> tuple[str, ...]:
    """Return the arguments of a process with secrets masked; empty if there is none."""
    return masked_arguments(_read(f"/proc/{pid}/cmdline").strip("\0").split("\0"))


def environment(pid: int) -> Mapping[str, str]:
    """Return the environment of a process with secrets masked; empty if it cannot be read."""
    return masked_environment(raw_environment(pid))


def rank_evidence(snapshot: RankSnapshot, node: str | None = None) -> RankEvidence:
    """Return what a rank did and how it was started, with secrets masked.

    Args:
        snapshot: of the rank.
        node: node whose processes are those of this machine; None for all nodes.

    """
    pid = snapshot.pid
    if pid is None or node not in (None, snapshot.node):
        return RankEvidence(snapshot=snapshot)
    return RankEvidence(snapshot=snapshot, command=command_line(pid), environment=environment(pid))


def _snapshots(
    found: Sequence[tuple[int, str, int | None]], deadline: float
) -> tuple[RankSnapshot, ...]:
    with ThreadPoolExecutor(max_workers=_WORKERS) as pool:
        snapshots = list(pool.map(lambda one: _take_snapshot(deadline, *one), found))
    return tuple(sorted(snapshots, key=lambda one: (one.rank, one.pid or 0)))


def python_process(rank: int, started: int) -> int:
    """Return the process that trains, below the one that was started: the outermost with Python.

    A warm rank has got its variables after its start, so /proc does not show them.
    """
    pids = [started, *descendants(started)]
    named = _by_rank(pids).get(rank)
    return named or next(filter(_is_python, pids), started)


def _ranks(node: NodeRanks) -> list[tuple[int, str, int | None]]:
    """Return rank, node and process of each rank of a node."""
    first = node.node_rank * node.local_world_size
    expected = range(first, first + node.local_world_size)
    processes: dict[int, int] = {}
    if node.root is not None:
        processes = _by_rank(_below(node))
    return [(rank, node.node, processes.get(rank)) for rank in expected]


def _below(node: NodeRanks) -> list[int]:
    assert node.root is not None  # noqa: S101 - the callers have excluded it
    return [pid for pid in descendants(node.root) if pid not in node.spare]


def _by_rank(pids: Iterable[int]) -> dict[int, int]:
    """Return the process of each rank: the outermost Python process with its ``RANK``.

    torchrun has none, unless it was given the one of its only rank; what it starts has
    ``TORCHELASTIC_RUN_ID``, too. Workers of a DataLoader have the environment of their rank, and
    come after it.
    """
    started: dict[int, int] = {}
    plain: dict[int, int] = {}
    for pid in pids:
        environment = raw_environment(pid)
        rank = environment.get("RANK", "")
        if not rank.isdecimal() or not _is_python(pid):
            continue
        by_launcher = "TORCHELASTIC_RUN_ID" in environment
        (started if by_launcher else plain).setdefault(int(rank), pid)
    return {**plain, **started}


def raw_environment(pid: int) -> Mapping[str, str]:
    """Return the environment of a process with its secrets; empty if it cannot be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            text = file.read(_ENVIRONMENT_LIMIT)
    except OSError:
        return {}
    pairs = (entry.partition("=") for entry in text.decode("utf-8", "replace").split("\0"))
    return {key: value for key, _, value in pairs if key}


def _is_python(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/exe").resolve().name.startswith(("python", "pypy"))
    except OSError:
        return False


def _take_snapshot(deadline: float, rank: int, node: str, pid: int | None) -> RankSnapshot:
    if pid is None:
        return RankSnapshot(rank=rank, node=node, pid=None, note="no process")
    before = _waiting(str(pid))
    dump = _threads(pid, deadline)
    threads = dump.threads
    frames = threads[0].frames if threads else ()
    seen = RankSnapshot(
        rank=rank, node=node, pid=pid, frames=frames, note=dump.note, is_unread=dump.is_late
    )
    below = [] if is_in_collective(seen) else descendants(pid)[:HELPERS_LIMIT]
    paths = {one.id: f"{pid}/task/{one.id}" for one in threads[1:]} | {
        child: str(child) for child in below
    }
    earlier = {number: _waiting(path) for number, path in paths.items()}
    with ThreadPoolExecutor(max_workers=_CHILDREN) as pool:
        processes = pool.map(lambda child: _process(child, deadline), below)
    helpers = [*threads[1:], *processes]
    time.sleep(_STATE_PAUSE_S)
    state, channel = _lasting(before, _waiting(str(pid)))
    return replace(
        seen,
        pid=pid if state else None,
        state=state,
        wait_channel=channel,
        helpers=ordered(
            _with_state(one, earlier[one.id], _waiting(paths[one.id])) for one in helpers
        ),
    )


def _threads(pid: int, deadline: float) -> ThreadDump:
    """Return the threads of a process, or why there are none.

    Where py-spy cannot read them, the process is asked, if it takes such requests.
    """
    dump = dumped_threads(pid, deadline)
    if dump.threads:
        return dump
    threads = requested_threads(pid, deadline)
    return ThreadDump(threads=threads) if threads else dump


def _process(pid: int, deadline: float) -> Helper:
    """Return a process below a rank with the stack of its main thread, if it has one."""
    name = _read(f"/proc/{pid}/comm")
    threads = dumped_threads(pid, deadline).threads if _is_python(pid) else ()
    frames = threads[0].frames if threads else ()
    return Helper(id=pid, name=name, is_process=True, frames=frames)


def _with_state(helper: Helper, before: tuple[str, str], after: tuple[str, str]) -> Helper:
    state, channel = _lasting(before, after)
    return replace(helper, state=state, wait_channel=channel)


def _waiting(path: str) -> tuple[str, str]:
    """Return state and wait channel of a task; an empty state if there is none any more.

    Args:
        path: below /proc, such as ``12`` for a main thread or ``12/task/14`` for another one.

    """
    fields = _read(f"/proc/{path}/stat").rpartition(")")[2].split()
    state = fields[0] if fields and fields[0] not in ("Z", "X") else ""
    channel = _read(f"/proc/{path}/wchan")
    return state, "" if channel == "0" else channel


def _lasting(before: tuple[str, str], after: tuple[str, str]) -> tuple[str, str]:
    """Return what is true of both samples: a short wait for a disk is no hang."""
    (early, there), (state, channel) = before, after
    if UNINTERRUPTIBLE in (early, state) and early != state:
        return "S" if state else "", ""
    return state, channel if channel == there or state == UNINTERRUPTIBLE else ""


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(4096).strip()
    except OSError:
        return ""
