"""Clients without the key of a launch must not keep its launchers out."""

import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from launch.launched import clean_environment, command

from holdfast.adapters.launch.channel import Channel
from holdfast.adapters.launch.messages import event_message
from holdfast.adapters.launch.server import LauncherServer
from holdfast.decisions.launch_events import Event, Joined, Lost, Member
from holdfast.decisions.launch_runs import RunName
from tests.engines.ports import free_port

KEY = b"0123456789abcdef"
LONG_S = 600.0
MOST = 8
JOINED = Joined(member=Member(name="a", address="127.0.0.1", port=1, slots=1))


class Server:
    """A coordinator's server with a few connections, and its clients."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.events: list[Event] = []
        self.server = LauncherServer(
            self.listener, KEY, LONG_S, self.events.append, RunName(), MOST
        )
        self.open = ExitStack()

    def connect(self) -> socket.socket:
        client = socket.create_connection(self.listener.getsockname())
        self.open.callback(client.close)
        self.advance()
        return client

    def advance(self) -> None:
        ready = select.select(self.server.readers(), [], [], 0.05)[0]
        self.server.advance(ready)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.open.close()
    made.server.close()


def test_a_launcher_joins_beside_idle_clients_and_is_not_replaced_by_them(server: Server) -> None:
    for _ in range(MOST):
        server.connect()
    launcher = Channel(server.connect(), KEY, is_server=False)
    launcher.send(event_message(JOINED))
    deadline = time.monotonic() + 30
    while not server.events and time.monotonic() < deadline:
        launcher.receive()
        server.advance()
    for _ in range(3 * MOST):
        server.connect()

    assert server.events == [JOINED]
    assert len(server.server.readers()) == 1 + MOST


def test_launchers_with_the_key_are_never_replaced(server: Server) -> None:
    launchers = []
    for number in range(MOST):
        channel = Channel(server.connect(), KEY, is_server=False)
        channel.send({"heartbeat": float(number)})
        launchers.append(channel)
    deadline = time.monotonic() + 30
    answered: set[int] = set()
    while len(answered) < MOST and time.monotonic() < deadline:
        server.advance()
        answered |= {
            place
            for place, one in enumerate(launchers)
            if any("heartbeat" in message for message in one.receive())
        }
    late = server.connect()
    server.advance()

    assert len(answered) == MOST
    assert late.recv(100) == b""
    assert not [one for one in server.events if isinstance(one, Lost)]


def limited(soft: int, hard: int, *arguments: object) -> subprocess.Popen[str]:
    """Start a launcher with limits on open files."""
    shell = f'ulimit -Sn {soft}; ulimit -Hn {hard}; exec "$@"'
    return subprocess.Popen(
        ["sh", "-c", shell, "sh", *command(*arguments)],
        env=clean_environment(HOLDFAST_LAUNCH_KEY=KEY.decode()),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )


def test_a_job_starts_while_others_flood_its_port(tmp_path: Path) -> None:
    endpoint = ("127.0.0.1", free_port())
    script = tmp_path / "train.py"
    script.write_text("import os; print('world', os.environ['WORLD_SIZE'])", encoding="utf-8")
    options = ("--nnodes", 2, "--rdzv-endpoint", f"{endpoint[0]}:{endpoint[1]}", script)
    first = limited(200, 200, *options)
    with ExitStack() as clients:
        deadline, count = time.monotonic() + 30, 0
        while count < 300 and time.monotonic() < deadline:
            try:
                client = socket.create_connection(endpoint, timeout=5)
            except OSError:
                time.sleep(0.05)
            else:
                clients.callback(client.close)
                count += 1
        second = limited(200, 200, *options)
        printed = [one.communicate(timeout=60) for one in (first, second)]

    assert [one.returncode for one in (first, second)] == [0, 0], printed
    assert [out for out, _ in printed] == ["world 2\n"] * 2


def test_too_few_open_files_for_the_nodes_are_reported_at_the_start(tmp_path: Path) -> None:
    options = ("--nnodes", 100, "--rdzv-endpoint", f"127.0.0.1:{free_port()}")
    refused = limited(200, 200, *options, sys.executable)
    _, printed = refused.communicate(timeout=60)

    assert refused.returncode == 2
    assert "100 nodes need 228 open files, the limit is 200" in printed


def test_ranks_get_the_limit_that_the_launcher_was_started_with(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import resource; print(*resource.getrlimit(resource.RLIMIT_NOFILE))", encoding="utf-8"
    )
    for warm in ((), ("--warm", "--preload", "json")):
        meeting = ("--nnodes", "1:2", "--rdzv-endpoint", f"127.0.0.1:{free_port()}")
        started = limited(512, 2048, *meeting, *warm, script)
        assert started.communicate(timeout=60)[0] == "512 2048\n"
