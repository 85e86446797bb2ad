"""Clients without the token of a test between two nodes do not make a healthy node fail it."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from apps.pair_node import TOKEN, serving

from holdfast.apps.checks.config import CheckConfig
from holdfast.apps.checks.pair import Other, check_pair
from holdfast.apps.checks.pair_server import PairServer, Unwatched
from holdfast.apps.clock import SystemClock
from holdfast.apps.listen_address import ListenAddress
from holdfast.model.node_checks import NodeCheck

IDLE = 300
"""More connections than a listener completes by default before the program accepts them."""

WAIT = timedelta(seconds=60)


@contextmanager
def idle_clients(port: int) -> Iterator[None]:
    """Clients that say nothing and stay."""
    opened = [socket.socket() for _ in range(IDLE)]
    try:
        for one in opened:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        yield
    finally:
        for one in opened:
            one.close()


def pair_check(port: int) -> NodeCheck:
    other = Other(address=ListenAddress("127.0.0.1", port), token=TOKEN, wait=WAIT)
    return check_pair(CheckConfig(), other, ["tcp"], Unwatched(), SystemClock())


def assert_measured(check: NodeCheck) -> None:
    """Whether it is good enough depends on how busy this machine is."""
    [part] = check.parts
    assert part.name == "tcp"
    assert part.measured["pair_tcp_us"] > 0


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "check.toml"
    path.touch()
    return path


def test_a_node_that_serves_tests_is_reached_among_idle_clients(config: Path) -> None:
    with serving(config) as (port, _), idle_clients(port):
        assert_measured(pair_check(port))


def test_a_node_that_serves_one_test_is_reached_among_idle_clients() -> None:
    server = PairServer(CheckConfig(), ListenAddress("127.0.0.1", 0), TOKEN)
    thread = threading.Thread(target=server.serve_one, kwargs={"wait": WAIT})
    with closing(server), idle_clients(server.port):
        thread.start()
        assert_measured(pair_check(server.port))
        thread.join()
