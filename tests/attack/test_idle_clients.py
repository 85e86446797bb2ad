"""Clients of the metrics cannot keep a health probe from its answer."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from attacked_agent import NOBODY, AttackedAgent, eventually

from holdfast.adapters.telemetry.http_server import HttpResponse, HttpServer
from tests.engines.ports import free_port

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="an attack changes its user: run as root")
PROBE_S = 4
"""The timeout of the liveness probe in the chart is 5 s."""

FLOOD = """
import socket, sys
held = []
while True:
    try:
        client = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=1)
        client.sendall(b"GET /metrics HTTP/1.1\\r\\n\\r\\n")
        held.append(client)
    except OSError:
        pass
    while len(held) > 200:
        held.pop(0).close()
"""


def is_well(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=PROBE_S) as probe:
        probe.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        return probe.recv(100).startswith(b"HTTP/1.1 200")


def test_idle_clients_do_not_starve_the_probes_of_agent_and_controller() -> None:
    server = HttpServer("127.0.0.1", 0, {"/healthz": lambda: HttpResponse("ok\n")})
    with ExitStack() as opened:
        opened.callback(server.close)
        for _ in range(64):
            opened.enter_context(socket.create_connection(("127.0.0.1", server.port)))

        assert is_well(server.port)


@contextmanager
def flooded(port: int) -> Iterator[None]:
    """Processes of another user ask for the metrics, as often as they can."""
    with ExitStack() as opened:
        for _ in range(3):
            attacker = subprocess.Popen(
                ["python3", "-c", FLOOD, str(port)], user=NOBODY, group=NOBODY, extra_groups=[]
            )
            opened.callback(attacker.wait)
            opened.callback(attacker.kill)
        eventually(lambda: _established(port) > 16)
        yield


def slow_page() -> HttpResponse:
    """Metrics of a large cluster."""
    end = time.thread_time() + 0.05
    while time.thread_time() < end:
        pass
    return HttpResponse("x")


@needs_root
def test_requests_for_metrics_that_take_long_do_not_delay_probes_with_their_own_listener() -> None:
    with ExitStack() as opened:
        metrics = HttpServer("127.0.0.1", 0, {"/metrics": slow_page})
        opened.callback(metrics.close)
        probes = HttpServer("127.0.0.1", 0, {"/healthz": lambda: HttpResponse("ok\n")})
        opened.callback(probes.close)
        with flooded(metrics.port):
            assert all(is_well(probes.port) for _ in range(20))


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AttackedAgent]:
    agent = AttackedAgent(tmp_path)
    yield agent
    agent.stop()


@needs_root
def test_a_flood_of_requests_for_metrics_does_not_delay_the_probe_of_an_agent(
    agent: AttackedAgent,
) -> None:
    metrics, probes = free_port(), free_port()
    agent.start(config=f"[telemetry]\nlisten = {metrics}\nprobes = {probes}\n")

    with flooded(metrics):
        assert all(is_well(probes) for _ in range(20))


def _established(port: int) -> int:
    """Connections to a port of this machine, also those that have not been accepted."""
    rows = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    return sum(row.split()[1].endswith(f":{port:04X}") for row in rows)
