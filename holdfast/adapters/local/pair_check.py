"""Network test between two local machines: data integrity and bandwidth.

Run as a process on each of the two: ``serve PORT`` echoes data, ``query PORT`` sends and compares.
Exit code 0 if all data came back unchanged; the last line of ``query`` is the measurement as JSON,
or the error.
"""

import hashlib
import json
import socket
import sys
import time
from typing import Final

BYTES: Final = 4 << 20
TIMEOUT_S: Final = 20.0
"""Seconds until the other process listens or connects, and for each transfer on the connection."""

_AGAIN_S: Final = 0.05
_HOST: Final = "127.0.0.1"


def serve(port: int) -> str:
    """Echo all data; returns the error, or an empty text."""
    with socket.create_server((_HOST, port)) as listener:
        listener.settimeout(TIMEOUT_S)
        connection = listener.accept()[0]
        with connection:
            connection.settimeout(TIMEOUT_S)
            connection.sendall(_read(connection, BYTES))
    return ""


def query(port: int) -> str:
    """Send data and compare the echo; returns the error, or an empty text."""
    data = hashlib.shake_256(b"holdfast").digest(BYTES)
    with _connect(port) as connection:
        began = time.perf_counter()
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        if _read(connection, BYTES) != data:
            return "the data returned by the other machine differs"
        took_s = time.perf_counter() - began
    print(json.dumps({"pair_tcp_mb_per_s": 2 * BYTES / took_s / 1e6}))  # noqa: T201 - its log is its output
    return ""


def _connect(port: int) -> socket.socket:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return socket.create_connection((_HOST, port), TIMEOUT_S)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
        time.sleep(_AGAIN_S)


def _read(connection: socket.socket, count: int) -> bytes:
    read = bytearray()
    while len(read) < count and (block := connection.recv(1 << 16)):
        read += block
    return bytes(read)


def main(argv: list[str]) -> int:
    """Run the side that the first argument names."""
    role = {"serve": serve, "query": query}[argv[0]]
    try:
        wrong = role(int(argv[1]))
    except OSError as error:
        wrong = f"the connection between the two machines failed: {error.strerror or error}"
    if wrong:
        print(wrong)  # noqa: T201
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
