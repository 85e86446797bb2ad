"""Outages of a control plane, most of them of etcd: at the end of each, everything works again."""

import http.client
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.engines.control_plane import ETCD, ControlPlane

_STOPPED_S: Final = 0.7
_RUNS_S: Final = 0.3
"""A slow etcd keeps most requests waiting for most of a second, and gets on on a busy machine."""

_TIMEOUT_S: Final = 10


@contextmanager
def killed_api_server(plane: ControlPlane) -> Iterator[None]:
    """SIGKILL, and a start at the same address at the end. Use it in the main thread."""
    plane.stop_api_server()
    try:
        yield
    finally:
        plane.start_api_server()


@contextmanager
def killed_etcd(plane: ControlPlane) -> Iterator[None]:
    """SIGKILL, and a start with the same data at the end. Use it in the main thread."""
    plane.stop(ETCD)
    try:
        yield
    finally:
        plane.start(ETCD)


@contextmanager
def stopped(plane: ControlPlane, program: str) -> Iterator[None]:
    """SIGSTOP: connections stay open, and nothing is answered."""
    pid = plane.pid(program)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def slow_etcd(plane: ControlPlane) -> Iterator[None]:
    """Stopped most of the time."""
    is_over = threading.Event()

    def slow_down() -> None:
        while not is_over.is_set():
            with stopped(plane, ETCD):
                is_over.wait(_STOPPED_S)
            is_over.wait(_RUNS_S)

    thread = threading.Thread(target=slow_down, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@contextmanager
def full_etcd(plane: ControlPlane) -> Iterator[None]:
    """The alarm NOSPACE, as when its quota is used up: it answers reads, and refuses writes."""
    _set_alarm(plane, "ACTIVATE")
    try:
        yield
    finally:
        _set_alarm(plane, "DEACTIVATE")


def _set_alarm(plane: ControlPlane, action: str) -> None:
    connection = http.client.HTTPConnection(*plane.etcd, timeout=_TIMEOUT_S)
    try:
        _connect(connection)
        status = _post(connection, "/v3/maintenance/status", {})
        member = status["header"]["member_id"]
        alarm = {"action": action, "memberID": member, "alarm": "NOSPACE"}
        _post(connection, "/v3/maintenance/alarm", alarm)
    finally:
        connection.close()


def _connect(connection: http.client.HTTPConnection) -> None:
    """Connect to etcd, also while it starts after it was killed."""
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            connection.connect()
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def _post(
    connection: http.client.HTTPConnection, path: str, body: object
) -> dict[str, dict[str, str]]:
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status == http.HTTPStatus.OK, f"{path}: {answer.status} {text!r}"
    found: dict[str, dict[str, str]] = json.loads(text)
    return found
