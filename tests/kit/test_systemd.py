"""What systemd receives, on a socket like its own."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.kit.systemd import notify_alive


@pytest.fixture(params=["path", "abstract"])
def notified(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[socket.socket]:
    path = str(tmp_path / "notify")
    is_path = request.param == "path"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(path if is_path else f"\0{path}")
        server.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", path if is_path else f"@{path}")
        yield server


def test_a_service_notifies_its_watchdog(notified: socket.socket) -> None:
    notify_alive()
    assert notified.recv(100) == b"WATCHDOG=1"


def test_a_full_queue_delays_nothing(notified: socket.socket) -> None:
    for _ in range(10_000):
        notify_alive()
    assert notified.recv(100) == b"WATCHDOG=1"


@pytest.mark.parametrize("address", ["", "/nowhere/notify", "relative", "@nobody"])
def test_without_systemd_nothing_happens(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify_alive()
