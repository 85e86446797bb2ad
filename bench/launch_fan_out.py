"""From a killed rank to the stop of all others: real launchers, and many simulated ones."""

import contextlib
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.disturbed_run import percentile
from bench.figure import Figure
from holdfast.adapters.launch.server import LauncherServer
from holdfast.apps.launch.coordinator import Coordinator
from holdfast.decisions.launch_state import RoundSettings
from holdfast.kit.free_ports import free_port
from holdfast.kit.processes import descendants, send
from holdfast.model.jobs import LAUNCH_KEY_VARIABLE

LAUNCHERS = 64
SIMULATED = 2000
SAMPLES = 5
_KEY: Final = "a key of this benchmark only"
_LEASE_S: Final = 60.0
"""Long enough for a machine that starts all launchers at once."""

_POLL_MS: Final = 100
_TIMEOUT_S: Final = 300


def run(*, quick: bool = False, samples: int = 0) -> list[Figure]:
    """Stop real launchers ``samples`` times, and the simulated ones once."""
    launchers, many = (8, 200) if quick else (LAUNCHERS, SIMULATED)
    real = _stopped(launchers, samples or (1 if quick else SAMPLES))
    return [
        Figure(
            name=f"killed rank to the end of all others, {launchers} launchers, p99",
            value=1000 * percentile(real, 0.99), unit="ms", goal=100,
        ),
        Figure(
            name=f"stop order to all of {many} simulated launchers",
            value=_simulated(many), unit="s", goal=1,
        ),
    ]  # fmt: skip


def _stopped(count: int, samples: int) -> list[float]:
    """Seconds from the end of a rank to the end of each of the others."""
    seconds: list[float] = []
    with _launched(count):
        old: set[int] = set()
        for _ in range(samples):
            ranks = _ranks(old, count)
            old |= set(ranks)
            seconds += _killed(ranks)
    return seconds


def _killed(ranks: list[int]) -> list[float]:
    """Kill a rank; return the seconds until each of the others has ended."""
    poll = select.poll()
    running = {os.pidfd_open(pid): pid for pid in ranks}
    for descriptor in running:
        poll.register(descriptor, select.POLLIN)
    send(ranks[-1], signal.SIGKILL)
    at, ended = time.monotonic(), []
    for _ in ranks:
        [(descriptor, _), *_] = poll.poll(1000 * _TIMEOUT_S)
        ended.append(time.monotonic() - at)
        poll.unregister(descriptor)
        os.close(descriptor)
    return ended[1:]


@contextlib.contextmanager
def _launched(count: int) -> Iterator[None]:
    """Launchers with one rank each, which ends on SIGTERM."""
    command = [
        sys.executable, "-m", "holdfast", "launch", "--nnodes", str(count), "--rdzv-endpoint",
        f"127.0.0.1:{free_port()}", "--max-restarts", "50", "--lease-timeout", f"{_LEASE_S:.0f}s",
        "--no-python", "--node-rank",
    ]  # fmt: skip
    environment = {**os.environ, LAUNCH_KEY_VARIABLE: _KEY}
    with open(os.devnull, "wb") as nowhere:
        guards = [
            subprocess.Popen([*command, str(rank), "sleep", "600"], env=environment, stderr=nowhere)
            for rank in range(count)
        ]
    try:
        yield
    finally:
        guards[0].terminate()  # the coordinator stops the job
        for guard in guards:
            guard.wait()


def _ranks(old: set[int], count: int) -> list[int]:
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        pids = [pid for pid in descendants(os.getpid()) if pid not in old]
        ranks = [pid for pid in pids if _name(pid) == "sleep"]
        if len(ranks) == count:
            return ranks
        time.sleep(0.1)
    raise RuntimeError(f"timed out: {count} launchers did not start their ranks")


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _simulated(count: int) -> float:
    """Seconds from a reported failure until the last launcher has its order to stop.

    The coordinator is in this process; another one has the connections of all launchers.
    """
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    listener = socket.create_server(("127.0.0.1", 0))
    coordinator = Coordinator(RoundSettings(nodes=count))
    server = LauncherServer(listener, _KEY.encode(), _LEASE_S, coordinator.handle)
    port = str(listener.getsockname()[1])
    clients = subprocess.Popen(
        [sys.executable, "-m", "bench._many_launchers", port, _KEY, str(count), str(_LEASE_S)],
        stdout=subprocess.PIPE, encoding="ascii",
    )  # fmt: skip
    try:
        while clients.poll() is None:
            poll = select.poll()
            for descriptor in server.readers():
                poll.register(descriptor, select.POLLIN)
            for descriptor in server.writers():
                poll.register(descriptor, select.POLLIN | select.POLLOUT)
            server.advance([one for one, _ in poll.poll(_POLL_MS)])
            server.send_orders(coordinator.orders_for, coordinator.basis)
    finally:
        server.close()
    return float(clients.communicate()[0])
