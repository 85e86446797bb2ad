"""Looks at the processes of ranks: state, wait channel and Python stack, in parallel.

Stacks are read by py-spy (0.4, extra ``stacks``) without pausing the process. It needs to be root,
or the same user where ``kernel.yama.ptrace_scope`` is 0.

``python -m holdfast.adapters.host.rank_stacks NODE RANK:PID ...`` prints the snapshots of some
ranks as JSON. PID is the process that was started for the rank; 0 if there is none any more.
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.decisions.hang_verdict import Frame, RankSnapshot
from holdfast.kit.masking import masked_arguments, masked_environment
from holdfast.kit.processes import descendants
from holdfast.kit.serial import to_plain

_SNAPSHOT_TIMEOUT_S: Final = 8.0
"""Maximum time of one snapshot, so that the verdict follows the suspicion within 10 seconds."""

_STATE_PAUSE_S: Final = 0.5
"""Time between two samples of the state, if reading the stack takes less."""

_WORKERS: Final = 16
_FRAMES_LIMIT: Final = 100
_OUTPUT_LIMIT: Final = 1 << 22
_ENVIRONMENT_LIMIT: Final = 1 << 20

NO_PY_SPY: Final = (
    "no stack: py-spy is not installed; install it with: pip install 'holdfast[stacks]'"
)
"""Note of a rank whose stack nothing can read."""


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


def take_snapshots(nodes: Sequence[NodeRanks]) -> tuple[RankSnapshot, ...]:
    """Return a snapshot of each rank of a job, in rank order, within about 8 seconds."""
    return _snapshots([one for node in nodes for one in _ranks(node)])


def rank_processes(nodes: Sequence[NodeRanks]) -> tuple[tuple[int, str, int], ...]:
    """Return rank, node and process of each rank that runs, in rank order."""
    found = [
        (rank, node.node, pid)
        for node in nodes
        if node.root is not None
        for rank, pid in _by_rank(_below(node)).items()
    ]
    return tuple(sorted(found))


def main(argv: Sequence[str]) -> int:
    """Print the snapshots of ranks. Returns the exit status."""
    node, *ranks = argv
    pairs = [(int(rank), int(pid)) for rank, _, pid in (one.partition(":") for one in ranks)]
    found = [(rank, node, python_process(rank, pid) if pid else None) for rank, pid in pairs]
    json.dump(to_plain(_snapshots(found)), sys.stdout)
    return 0


def command_line(pid: int) -> tuple[str, ...]:
    """Return the arguments of a process with secrets masked; empty if there is none."""
    return masked_arguments(_read(f"/proc/{pid}/cmdline").strip("\0").split("\0"))


def environment(pid: int) -> Mapping[str, str]:
    """Return the environment of a process with secrets masked; empty if it cannot be read."""
    return masked_environment(_environment(pid))


def _snapshots(found: Sequence[tuple[int, str, int | None]]) -> tuple[RankSnapshot, ...]:
    with ThreadPoolExecutor(max_workers=_WORKERS) as pool:
        snapshots = list(pool.map(lambda one: _take_snapshot(*one), found))
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
        environment = _environment(pid)
        rank = environment.get("RANK", "")
        if not rank.isdecimal() or not _is_python(pid):
            continue
        by_launcher = "TORCHELASTIC_RUN_ID" in environment
        (started if by_launcher else plain).setdefault(int(rank), pid)
    return {**plain, **started}


def _environment(pid: int) -> Mapping[str, str]:
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


def _take_snapshot(rank: int, node: str, pid: int | None) -> RankSnapshot:
    if pid is None:
        return RankSnapshot(rank=rank, node=node, pid=None, note="no process")
    before, channel = _state(pid), _read(f"/proc/{pid}/wchan")
    frames, note = _stack(pid)
    time.sleep(_STATE_PAUSE_S)
    state = _state(pid)
    if "D" in (before, state) and before != state:
        state = "S"  # a short wait for a disk is no hang
    return RankSnapshot(
        rank=rank,
        node=node,
        pid=pid if state else None,
        state=state,
        wait_channel="" if channel == "0" else channel,
        frames=frames,
        note=note,
    )


def _state(pid: int) -> str:
    """Return the state of a process; empty if there is none any more."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields[0] if fields and fields[0] not in ("Z", "X") else ""


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(4096).strip()
    except OSError:
        return ""


def _stack(pid: int) -> tuple[tuple[Frame, ...], str]:
    """Return the stack of the main thread, innermost frame first, or why there is none."""
    program = py_spy()
    if program is None:
        return (), NO_PY_SPY
    command = [program, "dump", "--json", "--nonblocking", "--pid", str(pid)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            timeout=_SNAPSHOT_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        threads = json.loads(done.stdout[:_OUTPUT_LIMIT]) if done.returncode == 0 else None
    except subprocess.TimeoutExpired:
        return (), f"no stack: py-spy did not respond within {_SNAPSHOT_TIMEOUT_S:g} s"
    except (OSError, ValueError) as error:
        return (), f"no stack: {error}"
    if threads is None:
        printed = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return (), f"no stack: py-spy: {printed[-1][:200] if printed else done.returncode}"
    return _main_thread(pid, threads), ""


def py_spy() -> str | None:
    """Return the path of py-spy; None if it is not installed."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.is_file() else shutil.which("py-spy")


def _main_thread(pid: int, threads: Any) -> tuple[Frame, ...]:
    mains = [
        one
        for one in threads
        if one.get("thread_name") == "MainThread" or one.get("os_thread_id") == pid
    ]
    chosen = (mains or threads or [{}])[0]
    return tuple(
        Frame(
            function=str(one.get("name", ""))[:200],
            file=str(one.get("filename", ""))[:500],
            line=int(one.get("line") or 0),
        )
        for one in chosen.get("frames", ())[:_FRAMES_LIMIT]
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
