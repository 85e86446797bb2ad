"""WebSockets (RFC 6455) with the channels of Kubernetes, for commands in containers."""

import base64
import http.client
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from enum import IntEnum
from typing import Final

from holdfast.adapters.kubernetes.client.api import Api

LONGEST_MESSAGE: Final = 1 << 20

_PROTOCOL: Final = "v4.channel.k8s.io"
"""WebSocket subprotocol; the first byte of a message is its channel."""

_LENGTHS: Final = {126: 2, 127: 8}
"""Size in bytes of the extended payload length, by the value of the length field."""

_LAST: Final = 0x80
_MASKED: Final = 0x80
_BINARY: Final = 2
_CLOSE: Final = 8
_CONTROL: Final = range(_CLOSE, 16)


class Channel(IntEnum):
    """Channel of a message."""

    INPUT = 0
    OUTPUT = 1
    ERRORS = 2
    STATUS = 3
    """Exit of the command, as a ``Status`` of the API."""

    RESIZE = 4


def opened(
    api: Api, pod: str, query: Mapping[str, str | Sequence[str]], stall: timedelta
) -> tuple[str, socket.socket, http.client.HTTPResponse]:
    """Start a command in a container. See ``Api.opened``."""
    headers = {
        "Accept": "*/*",  # the kubelet's exec route accepts nothing else: 406 Not Acceptable
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": base64.b64encode(secrets.token_bytes(16)).decode(),
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Protocol": _PROTOCOL,
    }
    return api.opened(f"{pod}/exec", query, stall, status=101, headers=headers)


def frame(channel: Channel, content: bytes) -> bytes:
    """Return a masked frame with a message to the server; 65,534 bytes at most."""
    whole = bytes([channel]) + content
    size = len(whole)
    head = bytes([_MASKED | size] if size < 126 else [_MASKED | 126, *size.to_bytes(2)])
    mask = secrets.token_bytes(4)
    stream = mask * (size // 4 + 1)
    masked = bytes(a ^ b for a, b in zip(whole, stream, strict=False))
    return bytes([_LAST | _BINARY]) + head + mask + masked


class Messages:
    """Decoder of the server's frames, from chunks of any size."""

    def __init__(self) -> None:
        self._unread = b""
        self._content = b""
        self._has_status = False

    def feed(self, piece: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the messages that are complete: channel and content of each.

        Raises:
            http.client.HTTPException: the server has closed before the exit of the command, or sent
                an invalid frame.

        """
        self._unread += piece
        while (taken := self._frame()) is not None:
            kind, is_last, part = taken
            if kind == _CLOSE and self._has_status:  # a kubelet sends both at once
                return
            if kind == _CLOSE:
                raise http.client.HTTPException(
                    "the connection was closed before the command ended"
                )
            if kind in _CONTROL:
                continue
            self._content += part
            if is_last and self._content:
                content, self._content = self._content, b""
                self._has_status |= content[0] == Channel.STATUS
                yield content[0], content[1:]

    def _frame(self) -> tuple[int, bool, bytes] | None:
        unread = self._unread
        if len(unread) < 2:
            return None
        begin, size = 2, unread[1] & 0x7F  # frames of a server are not masked
        if size in _LENGTHS:
            begin += _LENGTHS[size]
            if len(unread) < begin:
                return None
            size = int.from_bytes(unread[2:begin])
        if size + len(self._content) > LONGEST_MESSAGE:
            raise http.client.HTTPException(f"message exceeds the limit of {LONGEST_MESSAGE} bytes")
        end = begin + size
        if len(unread) < end:
            return None
        self._unread = unread[end:]
        return unread[0] & 0x0F, bool(unread[0] & _LAST), unread[begin:end]
