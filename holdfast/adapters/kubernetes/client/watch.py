"""Streaming responses: the events of a watch, the lines of a log."""

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from holdfast.adapters.kubernetes.client.errors import Json, Unreachable, status_error

_PIECE: Final = 1 << 16


class ResponseStream:
    """Bytes of a streaming response; used by one thread."""

    def __init__(
        self, call: str, opened: socket.socket, response: http.client.HTTPResponse
    ) -> None:
        self._call = call
        self._socket = opened
        self._response = response
        self._closed = False

    def read(self) -> bytes:
        """Return the bytes received; blocks until there are some. Empty at the end, or once closed.

        Raises:
            Unreachable: the connection broke, or the read timeout passed.

        """
        try:
            return self._response.read1(_PIECE)
        except (OSError, http.client.HTTPException) as error:
            if self._closed:
                return b""
            raise Unreachable(f"{self._call}: the response was cut off: {error!r}") from error

    def close(self) -> None:
        """Close the stream; any thread may call this, and a blocked ``read`` returns."""
        self._closed = True
        with suppress(OSError):  # the peer closed first
            # Not SSLSocket's own method, which would remove the TLS layer under the reader.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._response.close()
        self._socket.close()


class Watch(ResponseStream):
    """Iterates over events ``{"type": ..., "object": ...}``; belongs to one thread.

    The iteration ends when the API server ends the watch, or after ``close``. It raises
    ``ApiError`` (``Gone`` among them) for an ERROR event, and ``Unreachable`` when the connection
    breaks or nothing has come for longer than the read timeout.
    """

    def __iter__(self) -> Iterator[Json]:
        buffer = bytearray()
        seen = 0
        while piece := self.read():
            buffer += piece
            start = 0
            while (end := buffer.find(b"\n", max(start, seen))) >= 0:
                yield self._event(bytes(buffer[start:end]))
                start = end + 1
            del buffer[:start]
            seen = len(buffer)

    def _event(self, line: bytes) -> Json:
        try:
            event = json.loads(line)
            kind, content = event["type"], dict(event["object"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise Unreachable(f"{self._call}: not an event: {line[:200]!r}") from error
        if kind == "ERROR":
            raise status_error(self._call, int(content.get("code") or 0), content)
        return {"type": kind, "object": content}
