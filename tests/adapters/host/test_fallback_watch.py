"""Activity of real processes, read at times that the tests choose."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.adapters.host.fallback_watch import FallbackWatch
from holdfast.adapters.host.rank_activity import read_activity
from holdfast.decisions.job_activity import CONNECTION_RATE, CPU_SHARE
from holdfast.decisions.step_progress import SuspectedHang
from holdfast.decisions.step_times import StallLimits
from holdfast.kit.processes import cpu_use, descendants, start_time

T0 = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LIMITS = StallLimits(silence=10 * SECOND)
PERIOD = LIMITS.silence / 10
INSPECTED = 70 * SECOND
LIMIT_S = 120

COMPUTES = "while True: pass"
DEADLOCK = "import queue; print('waits', flush=True); queue.Queue().get()"
CHUNK = int(2 * CONNECTION_RATE * PERIOD.total_seconds())
RECEIVES = f"""
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as channel:
    while channel.recv({CHUNK}, socket.MSG_WAITALL):
        channel.send(b"1")
"""
HELPER = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", sys.argv[1]]).wait()
"""


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", *arguments]
        process = subprocess.Popen(
            command, stdin=stdin, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        started.append(process)
        return process

    yield run
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


class Ranks:
    """Ranks that are looked at once in each period, from ``T0`` on."""

    def __init__(self, *ranks: subprocess.Popen[str]) -> None:
        self.pids = [rank.pid for rank in ranks]
        self.watch = FallbackWatch(LIMITS)
        self.watch.begin("")
        self.now = T0

    def look(self, by: timedelta = PERIOD) -> SuspectedHang | None:
        self.now += by
        self.watch.look(self.now, lambda: self.pids)
        until(lambda: self.watch.look(self.now, lambda: self.pids) is not None or self.is_over())
        return self.watch.look(self.now, lambda: self.pids)

    def is_over(self) -> bool:
        """Whether no process looks at the accelerators."""
        return not self.watch.pids


def computes_for(pid: int, seconds: float) -> None:
    """Wait until a process has used this CPU time more."""
    known = cpu_use(pid)
    assert known is not None
    until(lambda: (now := cpu_use(pid)) is not None and now[1] - known[1] > seconds)


def test_a_deadlock_is_suspected_once_and_inspected_in_peace(start) -> None:
    rank = start(DEADLOCK)
    assert rank.stdout is not None
    rank.stdout.readline()
    ranks = Ranks(rank)
    found = [ranks.look() for _ in range(14)]

    suspected = [one for one in found if one is not None]
    assert suspected
    assert found.index(suspected[0]) >= 10
    assert len(set(suspected)) == 1
    assert suspected[0].evidence == (
        "no output, no CPU time and no network traffic of the ranks for 10s"
    )


def test_a_rank_that_computes_without_output_is_never_suspected_until_it_is_stopped(start) -> None:
    computes, waiting = start(COMPUTES), start(DEADLOCK)
    ranks = Ranks(computes, waiting)
    for _ in range(12):
        assert ranks.look() is None
        computes_for(computes.pid, CPU_SHARE * PERIOD.total_seconds() + 0.02)

    os.kill(computes.pid, signal.SIGSTOP)
    found = [ranks.look() for _ in range(14)]
    assert found[-1] is not None
    assert found[9] is None

    os.kill(computes.pid, signal.SIGCONT)
    computes_for(computes.pid, 0.02)
    assert ranks.look(INSPECTED) is not None, "the first reading after an inspection shows nothing"
    computes_for(computes.pid, CPU_SHARE * PERIOD.total_seconds() + 0.02)
    assert ranks.look() is None


def test_a_rank_that_only_receives_is_active_until_its_sender_pauses(start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        rank = start(RECEIVES, str(server.getsockname()[1]))
        peer, _ = server.accept()
    with peer:
        ranks = Ranks(rank)
        for _ in range(14):
            assert ranks.look() is None
            peer.sendall(bytes(CHUNK))
            assert peer.recv(1)
        found = [ranks.look() for _ in range(12)]

    assert found[-1] is not None
    assert found[0] is None


def test_ranks_that_have_ended_are_not_silent(start) -> None:
    rank = start("pass")
    rank.wait()
    ranks = Ranks(rank)

    assert [ranks.look() for _ in range(14)] == [None] * 14


def test_output_of_a_rank_counts_and_of_its_helpers_only_their_cpu_time(start) -> None:
    echoes = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
    rank = start(echoes, stdin=subprocess.PIPE)
    parent = start(HELPER, echoes, stdin=subprocess.PIPE)
    computing = start(HELPER, COMPUTES)
    until(lambda: bool(descendants(parent.pid) and descendants(computing.pid)))
    for one in (rank, parent):
        _echoed(one)  # both have imported what they need
    before, _ = read_activity([rank.pid, parent.pid])
    for one in (rank, parent):
        _echoed(one)
    after, _ = read_activity([rank.pid, parent.pid])

    moved = {pid: use.io_bytes - before[pid, at].io_bytes for (pid, at), use in after.items()}
    assert moved[rank.pid] == 6
    assert [count for pid, count in moved.items() if pid != rank.pid] == [0, 0]
    (helper,) = descendants(computing.pid)
    computes_for(helper, 0.05)
    assert read_activity([computing.pid])[0][helper, start_time(helper)].cpu_s >= 0.05


def _echoed(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("hello\n")
    process.stdin.flush()
    assert process.stdout.readline() == "hello\n"
