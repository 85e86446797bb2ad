"""Traffic of real processes: their own connections count, and not those of their neighbors."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.adapters.host.rank_traffic import read_traffic
from holdfast.decisions.job_activity import Traffic

CHUNK = 1 << 16
SENDS = """
import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
with socket.socket(family) as channel:
    channel.connect((sys.argv[1], int(sys.argv[2])))
    for line in sys.stdin:
        channel.sendall(bytes(int(line)))
        channel.recv(1)
        print(flush=True)
"""


class Sender:
    """A process that sends bytes to this one."""

    def __init__(self, address: str) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.create_server((address, 0), family=family) as server:
            port = server.getsockname()[1]
            self.process = subprocess.Popen(
                [sys.executable, "-c", SENDS, address, str(port)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            self._peer, _ = server.accept()

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, size: int) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{size}\n")
        self.process.stdin.flush()
        left = size
        while left:
            left -= len(self._peer.recv(min(left, CHUNK)))
        self._peer.sendall(b"1")
        self.process.stdout.readline()

    def close(self) -> None:
        self.process.communicate()
        self._peer.close()


@contextmanager
def sender(address: str) -> Iterator[Sender]:
    try:
        one = Sender(address)
    except OSError as error:
        pytest.skip(f"no {address}: {error}")
    try:
        yield one
    finally:
        one.close()


def moved(pid: int) -> int:
    found = read_traffic([pid])
    if found is None:
        pytest.skip("the kernel does not report connections")
    return sum(found.connections.values())


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_what_a_process_sends_counts_and_what_its_neighbor_sends_does_not(address: str) -> None:
    with sender(address) as own, sender(address) as neighbor:
        own.send(1)
        neighbor.send(1)
        known = moved(own.pid)
        neighbor.send(3_000_000)
        assert moved(own.pid) == known

        own.send(2_000_000)
        deadline = time.monotonic() + 60
        while (now := moved(own.pid)) < known + 2_000_001 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert now == known + 2_000_001  # with the byte of the answer


def test_an_idle_connection_and_a_process_that_has_ended_have_no_traffic() -> None:
    with sender("127.0.0.1") as own:
        own.send(1)
        known = moved(own.pid)
        time.sleep(0.5)
        assert moved(own.pid) == known
    assert read_traffic([own.pid]) == Traffic()


def test_the_connections_of_another_network_namespace_are_unknown() -> None:
    command = [shutil.which("unshare") or "unshare", "--net", "sh", "-c", "echo; exec sleep 600"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        if not process.stdout.readline():
            pytest.skip("network namespaces cannot be created")
        assert read_traffic([process.pid]) is None
        assert read_traffic([os.getpid(), process.pid]) is None
        assert read_traffic([os.getpid()]) is not None
    finally:
        process.kill()
        process.communicate()


def test_ports_count_if_a_process_has_their_device_open(tmp_path: Path) -> None:
    sysfs, devices = tmp_path / "sys", tmp_path / "infiniband"
    devices.mkdir()
    counters = {
        "mlx5_0/ports/1/counters/port_xmit_data": 1000,
        "mlx5_0/ports/1/counters/port_rcv_data": 500,
        "mlx5_0/ports/1/counters/symbol_error": 7,
        "rdmap0s6/ports/1/hw_counters/tx_bytes": 10,
        "rdmap0s6/ports/1/hw_counters/rdma_read_bytes": 20,
        "rdmap0s6/ports/1/hw_counters/retrans_bytes": 40,
        "rdmap0s6/ports/1/hw_counters/tx_pkts": 80,
        "unused/ports/1/counters/port_xmit_data": 9,
    }
    for name, count in counters.items():
        file = sysfs / "class/infiniband" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{count}\n", encoding="utf-8")
    for number, name in enumerate(("mlx5_0", "rdmap0s6", "unused")):
        folder = sysfs / "class/infiniband_verbs" / f"uverbs{number}"
        folder.mkdir(parents=True)
        (folder / "ibdev").write_text(f"{name}\n", encoding="utf-8")
        (devices / f"uverbs{number}").touch()

    with (devices / "uverbs0").open(), (devices / "uverbs1").open():
        found = read_traffic([os.getpid()], sysfs, devices)

    assert found is not None
    assert found.ports == {"mlx5_0/1": 6000, "rdmap0s6/1": 30}
    assert read_traffic([os.getpid()], sysfs, devices) == Traffic(connections=found.connections)
