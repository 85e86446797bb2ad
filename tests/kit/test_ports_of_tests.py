"""Ports for the servers of tests: each process has its own, and uses them in turn."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.engines.ports import free_port

ROOT = Path(__file__).resolve().parents[2]


def test_processes_get_different_ports() -> None:
    program = (
        "from tests.engines.ports import free_port\n"
        "print(*(free_port() for _ in range(200)), flush=True)\n"
        "input()\n"
    )
    others = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="ascii",
        )
        for _ in range(2)
    ]
    given = []
    for one in others:
        assert one.stdout is not None
        given.append({int(port) for port in one.stdout.readline().split()})
    given.append({free_port() for _ in range(200)})
    for one in others:
        one.communicate("\n")

    assert len(set.union(*given)) == sum(len(ports) for ports in given) > 500


def test_a_forked_process_gets_different_ports() -> None:
    own = {free_port() for _ in range(200)}
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        os.write(writing, str(free_port()).encode())
        os._exit(0)
    os.waitpid(process, 0)
    with os.fdopen(reading) as pipe:
        os.close(writing)
        assert int(pipe.read()) not in own


def test_a_port_is_given_again_after_all_others_and_only_if_nothing_listens_there() -> None:
    first = free_port()
    with socket.create_server(("127.0.0.1", first)):
        others = [free_port() for _ in range(250)]

    assert first not in others
    assert len(set(others)) > 150
    assert first in {free_port() for _ in range(200)}
