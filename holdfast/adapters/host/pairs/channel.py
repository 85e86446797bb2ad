"""TCP connection between the two ends of a test, which authenticate each other by a token.

The server sends a nonce, the client replies with its own nonce and the HMAC of both, and receives
another HMAC in return; the token itself is never transmitted, and a reply cannot be replayed.
After that, messages are lines of JSON, and blocks of bytes where a test sends them. Nothing is
encrypted: the bytes are worthless, and an attacker who can modify packets can delay them as well.
"""

import hmac
import json
import secrets
import select
import socket
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from holdfast.kit.bounded_files import parse_json
from holdfast.model.errors import BackendError

PORT: Final = 20259
"""Default port of ``holdfast check serve``."""

SHORTEST_TOKEN: Final = 16
"""Minimum length in characters. ``openssl rand -hex 32`` gives 64."""

STALL: Final = timedelta(seconds=10)
"""The peer counts as disconnected after this long without progress."""

_GREETING: Final = b"holdfast-pair/1"
_LONGEST_LINE: Final = 256 * 1024
_NONCE_BYTES: Final = 32
_POLL_S: Final = 0.1
_LATE: Final = "the peer timed out"


class PairConnection:
    """One connection; every failure raises BackendError."""

    def __init__(self, connection: socket.socket) -> None:
        """Wrap an open socket; the caller closes it."""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self._unread = bytearray()
        self._broken = ""
        self.allow(STALL)

    def allow(self, limit: timedelta, *, stall: timedelta = STALL) -> None:
        """Fail after ``limit`` from now, or after ``stall`` without progress."""
        self._deadline = time.monotonic() + limit.total_seconds()
        self._stall_s = stall.total_seconds()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message."""
        self.write(json.dumps(message).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        """Wait for one message."""
        line = self.read_line()
        try:
            message = parse_json(line)
        except ValueError as error:
            raise self.give_up("the peer sent an invalid message") from error
        if not isinstance(message, dict):
            raise self.give_up("the peer sent an invalid message")
        return message

    def await_message(self, is_over: Callable[[], bool]) -> None:
        """Wait until data arrives; fail as soon as ``is_over`` returns True."""
        poll = select.poll()  # select.select accepts no descriptor above 1,023
        poll.register(self._socket, select.POLLIN)
        while not self._unread and not poll.poll(_POLL_S * 1000):
            if is_over():
                raise self.give_up("the test was cancelled")
            self._bound()

    def write(self, data: bytes) -> None:
        """Send all of ``data``."""
        self._bound()
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise self._lost(error) from error

    def read(self, count: int) -> bytes:
        """Wait for ``count`` bytes."""
        while len(self._unread) < count:
            self._more()
        data = bytes(self._unread[:count])
        del self._unread[:count]
        return data

    def read_line(self) -> bytes:
        """Wait for a line; returned without its newline."""
        while (end := self._unread.find(b"\n")) < 0:
            if len(self._unread) > _LONGEST_LINE:
                raise self.give_up("the peer sent a line that is too long")
            self._more()
        return self.read(end + 1)[:-1]

    def _more(self) -> None:
        self._bound()
        try:
            block = self._socket.recv(64 * 1024)
        except OSError as error:
            raise self._lost(error) from error
        if not block:
            raise self.give_up("the peer closed the connection")
        self._unread += block

    def _bound(self) -> None:
        if self._broken:
            raise BackendError(f"the connection is unusable: {self._broken}")
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise self.give_up(_LATE)
        self._socket.settimeout(min(left, self._stall_s))

    def _lost(self, error: OSError) -> BackendError:
        if isinstance(error, TimeoutError):
            is_late = time.monotonic() >= self._deadline
            return self.give_up(_LATE if is_late else f"no progress for {self._stall_s:g} s")
        return self.give_up(f"the connection was lost: {error.strerror or error}")

    def give_up(self, why: str) -> BackendError:
        """Mark the connection unusable: part of a test may be left in it."""
        self._broken = why
        return BackendError(why)


def authenticate_as_server(connection: socket.socket, token: str) -> PairConnection:
    """Authenticate as the server: accept a client that has the token.

    Raises:
        BackendError: the client does not have the token, or does not respond in time.

    """
    channel = PairConnection(connection)
    nonce = secrets.token_hex(_NONCE_BYTES).encode()
    channel.write(_GREETING + b" " + nonce + b"\n")
    peer_nonce, _, proof = channel.read_line().partition(b" ")
    if not hmac.compare_digest(proof, _proof(token, b"asks", nonce, peer_nonce)):
        channel.write(b"refused\n")
        raise BackendError("token mismatch; use the same --token-file on both nodes")
    channel.write(_proof(token, b"serves", nonce, peer_nonce) + b"\n")
    return channel


def authenticate_as_client(connection: socket.socket, token: str) -> PairConnection:
    """Authenticate as the client.

    Raises:
        BackendError: the peer is another service, or does not have the token.

    """
    channel = PairConnection(connection)
    greeting, _, peer_nonce = channel.read_line().partition(b" ")
    if greeting != _GREETING:
        raise BackendError("the server is not holdfast check serve, or has another version")
    nonce = secrets.token_hex(_NONCE_BYTES).encode()
    channel.write(nonce + b" " + _proof(token, b"asks", peer_nonce, nonce) + b"\n")
    answer = channel.read_line()
    if answer == b"refused":
        raise BackendError("token rejected by the server; use the same --token-file on both nodes")
    if not hmac.compare_digest(answer, _proof(token, b"serves", peer_nonce, nonce)):
        raise BackendError("token mismatch; use the same --token-file on both nodes")
    return channel


def _proof(token: str, role: bytes, first: bytes, second: bytes) -> bytes:
    return hmac.digest(token.encode(), b" ".join((role, first, second)), "sha256").hex().encode()
