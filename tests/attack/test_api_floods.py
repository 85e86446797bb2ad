"""Clients without a login cannot keep others from the API and the console, or fill its log."""

import http.client
import os
import resource
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from holdfast.apps.api.connections import BACKLOG

sys.path.insert(0, str(Path(__file__).parents[1] / "apps"))
from served_api import Served, serving, with_keys

TIMEOUT_S = 90.0
LIMIT = 16
HALF_REQUESTS = {
    "nothing": b"",
    "half a head": b"POST / HTTP/1.1\r\nHost: a\r\n",
    "half a body": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{",
    "half a sign-in": (
        b"POST /console/session HTTP/1.1\r\nHost: a\r\nOrigin: http://a\r\n"
        b"Content-Length: 100\r\n\r\n{"
    ),
    "no HTTP": b"\x16\x03\x01 \r\n\r\n",
    "an answer that is not read": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 250,
}


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[Served]:
    config = tmp_path_factory.mktemp("api") / "api.toml"
    home = str(tmp_path_factory.mktemp("home"))
    with_keys(config, f"max_connections = {LIMIT}")
    with serving(config, HOLDFAST_HOME=home) as served:
        yield served


@contextmanager
def flood(served: Served, number: int, begin: bytes) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        clients = []
        for _ in range(number):
            client = socket.create_connection(("127.0.0.1", served.port), TIMEOUT_S)
            clients.append(stack.enter_context(client))
            client.sendall(begin)
        yield clients


def health(served: Served) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=TIMEOUT_S)
    connection.request("GET", "/healthz")
    status = connection.getresponse().status
    connection.close()
    return status


def open_files(served: Served) -> int:
    return len(os.listdir(f"/proc/{served.process.pid}/fd"))


@pytest.mark.parametrize("begin", HALF_REQUESTS.values(), ids=HALF_REQUESTS)
def test_a_flood_of_clients_keeps_no_health_probe_from_its_answer(
    served: Served, begin: bytes
) -> None:
    assert health(served) == 200
    before, logged = open_files(served), len(served.said())

    with flood(served, 200, begin):
        assert health(served) == 200
        assert open_files(served) <= before + LIMIT + BACKLOG
    assert served.said()[logged:] == ""


def test_a_server_without_file_descriptors_answers_and_logs_one_line(tmp_path) -> None:
    config = with_keys(tmp_path / "api.toml")
    with serving(config, HOLDFAST_HOME=str(tmp_path)) as served:
        assert health(served) == 200
        limit = open_files(served) + 8
        resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, (limit, limit))
        before, deadline = len(served.said()), time.monotonic() + TIMEOUT_S
        for _ in range(3):
            with flood(served, 100, b""):
                assert health(served) == 200
        while "cannot accept connections" not in served.said():
            assert time.monotonic() < deadline
            time.sleep(0.05)

        lines = served.said()[before:].splitlines()
        assert len(lines) == 1
        assert "lower max_connections" in lines[0]
