"""1,000 kill-and-resume rounds and 1,000 restarts in place, and what they leave behind."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

from bench.disturbed_run import disturbed_run
from bench.figure import Figure
from holdfast.adapters.launch.cgroups import own_cgroup
from holdfast.adapters.local.faults import kill_rank
from holdfast.kit.free_ports import free_port
from holdfast.kit.processes import descendants, send
from holdfast.model.jobs import LAUNCH_KEY_VARIABLE

BY_NAME_ONLY = "it takes minutes; make soak"
ROUNDS = 1000
_WARM_UP = 20
"""Rounds after which everything that is made once has been made."""

_RESTARTS: Final = 250
"""Restarts in place of one launch. The first ones are its warm-up."""

_LEASE: Final = "1m"
"""On a busy machine, a launcher may wait for a CPU longer than its usual lease lasts."""

_FIRST: Final = 10
_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108
_RANKS: Final = 4
_POLL_S: Final = 0.001
_SETTLE_S: Final = 0.2
"""For the pipe with which a process was just started to be closed."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What processes hold, and the machine for them."""

    processes: int
    file_descriptors: int
    listening_tcp_ports: int
    shared_memory_segments: int
    temporary_files: int
    control_groups: int

    def more_than(self, before: "Usage") -> list[int]:
        """By how much each number has grown."""
        return [max(0, new - old) for new, old in zip(astuple(self), astuple(before), strict=True)]


def run() -> list[Figure]:
    """Count what is held before and after, in a run that restarts and in launches that do."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder  # so that nobody else creates files there
        try:
            return [*_restarted_runs(), *_restarted_in_place()]
        finally:
            del os.environ["TMPDIR"]
            tempfile.tempdir = None


def _restarted_runs() -> list[Figure]:
    with disturbed_run() as one:
        for _ in range(_WARM_UP):
            one.disturb(kill_rank)
        before = _usage([one.process.pid])
        for _ in range(ROUNDS):
            one.disturb(kill_rank)
        after = _usage([one.process.pid])
        last = one.process.pid
    return _leaks(f"{ROUNDS} rounds", after.more_than(before), len(descendants(last)))


def _restarted_in_place() -> list[Figure]:
    """Each launch has two nodes with two ranks, and restarts as often as it may."""
    leaked, left, groups, done = [0] * len(Usage.__slots__), 0, 0, 0
    at_first = _usage([])
    while done < ROUNDS:
        nodes = _launched()
        for _ in range(_FIRST):
            _restart_in_place(nodes)
        before = _usage([one.pid for one in nodes])
        for _ in range(_RESTARTS - _FIRST):
            _restart_in_place(nodes)
        done += _RESTARTS
        after = _usage([one.pid for one in nodes])
        leaked = [old + new for old, new in zip(leaked, after.more_than(before), strict=True)]
        pids = [pid for one in nodes for pid in descendants(one.pid)]
        nodes[0].send_signal(signal.SIGTERM)
        for one in nodes:
            one.wait()
        left += sum(map(_is_alive, pids))
        groups += _control_groups([one.pid for one in nodes])
    over = _usage([]).more_than(at_first)
    worst = [max(pair) for pair in zip(leaked, over, strict=True)]
    name = f"control groups left after {done} restarts in place"
    return [
        *_leaks(f"{done} restarts in place", worst, left),
        Figure(name=name, value=groups, unit="", goal=0),
    ]


def _launched() -> list["subprocess.Popen[bytes]"]:
    endpoint = f"127.0.0.1:{free_port()}"
    command = [
        sys.executable, "-m", "holdfast", "launch", "--nnodes", "2", "--nproc-per-node", "2",
        "--rdzv-endpoint", endpoint, "--max-restarts", str(_RESTARTS),
        "--lease-timeout", _LEASE, "--no-python", "--node-rank",
    ]  # fmt: skip
    nodes = [
        subprocess.Popen(
            [*command, str(rank), "sleep", "600"], stderr=subprocess.DEVNULL,
            env={**os.environ, LAUNCH_KEY_VARIABLE: "a key of this benchmark only"},
        )
        for rank in range(2)
    ]  # fmt: skip
    _new_ranks(nodes, ())
    return nodes


def _restart_in_place(nodes: list["subprocess.Popen[bytes]"]) -> None:
    old = _new_ranks(nodes, ())
    send(old[-1], signal.SIGKILL)
    _new_ranks(nodes, old)


def _new_ranks(nodes: list["subprocess.Popen[bytes]"], old: Collection[int]) -> list[int]:
    """Wait for all ranks of the next round."""
    while True:
        pids = [pid for one in nodes for pid in descendants(one.pid)]
        ranks = [pid for pid in pids if pid not in old and _name(pid) == "sleep"]
        if len(ranks) == _RANKS:
            return ranks
        if any(one.poll() is not None for one in nodes):
            raise RuntimeError(f"a launcher ended: {[one.returncode for one in nodes]}")
        time.sleep(_POLL_S)


def _leaks(when: str, leaked: list[int], left: int) -> list[Figure]:
    names = [name.replace("_", " ") for name in Usage.__slots__]
    return [
        *(
            Figure(name=f"{name} leaked in {when}", value=count, unit="", goal=0)
            for name, count in zip(names, leaked, strict=True)
        ),
        Figure(name=f"processes left after {when}", value=left, unit="", goal=0),
    ]


def _usage(roots: list[int]) -> Usage:
    """What these processes, all below them and the machine hold."""
    time.sleep(_SETTLE_S)
    processes = [pid for root in roots for pid in (root, *descendants(root))]
    # A rank is launched a moment after its attempt: count what is there for good.
    lasting = [pid for pid in processes if _name(pid) != "sleep"]
    open_files = [os.readlink(one) for pid in lasting for one in Path(f"/proc/{pid}/fd").iterdir()]
    return Usage(
        processes=len(lasting),
        file_descriptors=len(open_files),
        listening_tcp_ports=len(_listening_sockets() & set(open_files)),
        shared_memory_segments=sum(path.is_file() for path in _SHARED_MEMORY.iterdir()),
        temporary_files=len(os.listdir(tempfile.gettempdir())),
        control_groups=_control_groups(roots),
    )


def _control_groups(guards: list[int]) -> int:
    """How many control groups these launches have; none where they may not create any."""
    own = own_cgroup()
    folders = [one for pid in guards if own for one in own.glob(f"holdfast-launch-{pid}-*")]
    return sum(len(list(os.walk(folder))) for folder in folders)


def _listening_sockets() -> set[str]:
    """Names of listening TCP sockets, as in ``/proc/PID/fd``."""
    lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    fields = [line.split() for line in lines]
    listening = "0A"  # TCP_LISTEN in the kernel's tcp_states.h
    return {f"socket:[{one[9]}]" for one in fields if one[3] == listening}


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _is_alive(pid: int) -> bool:
    return bool(_name(pid))
