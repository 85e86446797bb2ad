"""Interactive commands in containers, with a terminal that can be resized."""

import http.client
import json
import os
import select
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from io import BufferedReader
from typing import Final

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import Unreachable
from holdfast.adapters.kubernetes.client.websocket import Channel, Messages, frame, opened
from holdfast.model.errors import BackendError

_PIECE: Final = 1 << 16
_TYPED: Final = 1 << 12
_POLL_S: Final = 1.0
"""A signal that arrives just before ``select`` does not interrupt it: its handler runs after it."""

_END_OF_INPUT: Final = b"\x04"
"""Ctrl-D as a terminal sends it; the protocol has no message for the end of the input."""

_NOT_NOW: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

Log = Callable[[int, bytes], None]
"""Callback that takes output of the command and its channel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """Terminal of the user."""

    typed: int
    """File descriptor of the input."""

    resized: int
    """File descriptor that yields a byte whenever the terminal is resized."""

    size: Callable[[], os.terminal_size]


def attend(
    api: Api, pod: str, container: str, command: Sequence[str], terminal: Terminal | None, log: Log
) -> int:
    """Run a command, with a terminal if there is one and without input otherwise.

    Returns:
        Exit code of the command.

    Raises:
        BackendError: it could not be started, or its exit code is unknown.

    """
    query = {"container": container, "command": command, "stdout": "true"}
    query |= {"stdin": "true", "tty": "true"} if terminal else {"stderr": "true"}
    call, connection, response = opened(api, pod, query, timedelta(0))
    try:
        return _ExecSession(call, connection, response.fp, terminal).run(log)
    finally:
        response.close()
        connection.close()


class _ExecSession:
    def __init__(
        self,
        call: str,
        connection: socket.socket,
        stream: BufferedReader,
        terminal: Terminal | None,
    ) -> None:
        self._call = call
        self._connection = connection
        self._stream = stream
        self._terminal = terminal
        self._messages = Messages()
        self._unsent = bytearray()
        self._is_readable = False
        self._size: os.terminal_size | None = None
        self._is_input_over = terminal is None

    def run(self, log: Log) -> int:
        self._send_size()
        while True:
            for channel, content in self._received():
                if channel == Channel.STATUS:
                    return _exit_code(content)
                log(channel, content)
            self._send()
            self._wait()

    def _received(self) -> list[tuple[int, bytes]]:
        try:
            piece = self._stream.read1(_PIECE)
            if not piece and self._is_readable:
                raise http.client.IncompleteRead(b"")
            return list(self._messages.feed(piece))
        except _NOT_NOW:
            return []
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"{self._call}: {error!r}") from error

    def _send(self) -> None:
        try:
            while self._unsent:
                sent = self._connection.send(self._unsent[:_PIECE])
                del self._unsent[:sent]
        except _NOT_NOW:
            pass
        except OSError as error:
            raise Unreachable(f"{self._call}: {error!r}") from error

    def _wait(self) -> None:
        """Wait for I/O; input is not read while the connection cannot take more."""
        terminal = self._terminal
        watched: list[socket.socket | int] = [self._connection]
        if terminal is not None:
            watched.append(terminal.resized)
            if not self._is_input_over and len(self._unsent) < _PIECE:
                watched.append(terminal.typed)
        is_pending = isinstance(self._connection, ssl.SSLSocket) and self._connection.pending()
        writing = [self._connection] if self._unsent else []
        ready, _, _ = select.select(watched, writing, [], 0 if is_pending else _POLL_S)
        self._is_readable = self._connection in ready
        if terminal is not None and terminal.resized in ready:
            os.read(terminal.resized, _TYPED)
        self._send_size()  # before the input: the notification of a resize may be late
        if terminal is not None and terminal.typed in ready:
            typed = os.read(terminal.typed, _TYPED)
            self._is_input_over = not typed
            self._unsent += frame(Channel.INPUT, typed or _END_OF_INPUT)

    def _send_size(self) -> None:
        now = self._terminal.size() if self._terminal is not None else None
        if now is not None and now != self._size:
            size = json.dumps({"Width": now.columns, "Height": now.lines})
            self._unsent += frame(Channel.RESIZE, size.encode())
        self._size = now


def _exit_code(status: bytes) -> int:
    """Return the exit code in a ``Status`` of the API."""
    try:
        parsed = json.loads(status)
        if parsed["status"] == "Success":
            return 0
        causes = {one["reason"]: one["message"] for one in parsed["details"]["causes"]}
        return int(causes["ExitCode"])
    except (ValueError, KeyError, TypeError):
        reported = status.decode(errors="replace")
        raise BackendError(f"the exit code of the command is unknown: {reported[:300]}") from None
