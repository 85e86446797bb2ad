"""Authenticated JSON lines over TCP, without blocking.

Each side sends a line ``holdfast-launch 1 NONCE``, then lines ``MAC JSON``. The MAC is HMAC-SHA256
of the message, its number and its direction, with a key of the connection that depends on the job's
key and on both nonces: messages cannot be forged, repeated, reordered or sent back. They are not
encrypted.
"""

import hmac
import json
import secrets
import socket
from collections.abc import Iterator
from typing import Any, Final

from holdfast.kit.bounded_files import parse_json

_GREETING: Final = b"holdfast-launch 1 "
_NONCE_BYTES: Final = 16
_MAC_CHARS: Final = 64
_LONGEST: Final = 65536
"""Bytes of a line. The longest history of restarts takes less than 60,000."""

_CHUNK: Final = 65536


class ChannelClosed(Exception):
    """The connection has ended, or the other side does not have the key."""


class Channel:
    """One connection. ``is_server`` differs between its two sides."""

    def __init__(self, connection: socket.socket, key: bytes, *, is_server: bool) -> None:
        connection.settimeout(0)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._key = key
        self._is_server = is_server
        self._nonce = secrets.token_hex(_NONCE_BYTES).encode()
        self._session = b""
        self._unread = b""
        self._unsent = _GREETING + self._nonce + b"\n"
        self._waiting: list[bytes] = []
        self._sent = self._received = 0

    def fileno(self) -> int:
        """Return the descriptor, for ``select``."""
        return self._connection.fileno()

    def local_address(self) -> str:
        """Return the address of this side."""
        return str(self._connection.getsockname()[0])

    def has_unsent(self) -> bool:
        """Return whether ``flush`` must be called when the connection is writable."""
        return bool(self._unsent)

    def send(self, message: dict[str, Any]) -> None:
        """Send a message as soon as possible.

        Raises:
            ChannelClosed: the connection has ended.

        """
        text = json.dumps(message, separators=(",", ":")).encode()
        if self._session:
            self._unsent += self._signed(text)
        else:
            self._waiting.append(text)
        self.flush()

    def flush(self) -> None:
        """Send what is unsent, without blocking.

        Raises:
            ChannelClosed: the connection has ended.

        """
        try:
            while self._unsent:
                self._unsent = self._unsent[self._connection.send(self._unsent) :]
        except BlockingIOError:
            return
        except OSError as error:
            raise ChannelClosed(error.strerror or "connection lost") from error

    def receive(self) -> list[dict[str, Any]]:
        """Return the messages that have arrived.

        Raises:
            ChannelClosed: the connection has ended, or a message is not valid.

        """
        try:
            data = self._connection.recv(_CHUNK)
        except BlockingIOError:
            return []
        except OSError as error:
            raise ChannelClosed(error.strerror or "connection lost") from error
        if not data:
            raise ChannelClosed("connection closed by the other side")
        *lines, self._unread = (self._unread + data).split(b"\n")
        if len(self._unread) > _LONGEST:
            raise ChannelClosed("message too long")
        return list(self._messages(lines))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _messages(self, lines: list[bytes]) -> Iterator[dict[str, Any]]:
        for line in lines:
            if not self._session:
                self._agree(line)
                continue
            mac, text = line[:_MAC_CHARS], line[_MAC_CHARS + 1 :]
            expected = self._mac(text, self._received, from_server=not self._is_server)
            if not hmac.compare_digest(mac, expected):
                raise ChannelClosed("wrong key; give all launchers the same HOLDFAST_LAUNCH_KEY")
            self._received += 1
            try:
                message = parse_json(text)
            except ValueError as error:
                raise ChannelClosed(f"invalid message: {error}") from error
            if not isinstance(message, dict):
                raise ChannelClosed("invalid message: not an object")
            yield message

    def _agree(self, line: bytes) -> None:
        nonce = line.removeprefix(_GREETING)
        if nonce == line or len(nonce) != 2 * _NONCE_BYTES or nonce == self._nonce:
            raise ChannelClosed("the other side is not a launcher of this release")
        own, peer = self._nonce, nonce
        nonces = own + peer if self._is_server else peer + own
        self._session = hmac.digest(self._key, nonces, "sha256")
        self._unsent += b"".join(self._signed(text) for text in self._waiting)
        self._waiting.clear()
        self.flush()

    def _signed(self, text: bytes) -> bytes:
        mac = self._mac(text, self._sent, from_server=self._is_server)
        self._sent += 1
        return mac + b" " + text + b"\n"

    def _mac(self, text: bytes, number: int, *, from_server: bool) -> bytes:
        side = b"server" if from_server else b"client"
        content = b"%s %d " % (side, number) + text
        return hmac.digest(self._session, content, "sha256").hex().encode()
