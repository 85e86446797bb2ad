"""Minimal HTTP server for metrics and health probes.

At most ``CLIENTS`` connections are open. A further one replaces the oldest connection of the
address that has the most, so a probe is answered even if other clients connect and send nothing.
"""

import select
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from holdfast.kit.connections import ConnectionLimits, connection_to_replace
from holdfast.model.errors import ConfigError

CLIENTS: Final = 16
"""Maximum number of open connections."""

TIMEOUT_S: Final = 5.0
"""Timeout for a whole exchange, after which the connection is closed."""

REQUEST_BYTES: Final = 8 * 1024
"""Maximum size of a request with its headers, as in most servers."""

_ACCEPT_PAUSE_S: Final = 0.1
"""Wait after a failed ``accept``: without file descriptors, the listener stays ready."""

_END: Final = b"\r\n\r\n"
_READ: Final = select.POLLIN
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """HTTP response."""

    text: str
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"


@dataclass(slots=True)
class _Client:
    connection: socket.socket
    address: str
    deadline: float
    request: bytes = b""
    answer: memoryview = field(default_factory=lambda: memoryview(b""))

    @property
    def replacement_order(self) -> float:
        return self.deadline


class HttpServer:
    """Serves pages in a separate thread until it is closed."""

    def __init__(
        self, host: str, port: int, pages: Mapping[str, Callable[[], HttpResponse]]
    ) -> None:
        """Serve ``pages``, by path, on ``host`` and ``port``; port 0 is any free one.

        Raises:
            ConfigError: the address cannot be used.

        """
        self._pages = pages
        try:
            family, kind, _, _, address = socket.getaddrinfo(
                host.encode() or None,  # a text would load a table of Unicode's names, 1 MB
                port,
                type=socket.SOCK_STREAM,
                flags=socket.AI_PASSIVE,
            )[0]
            self._listener = socket.socket(family, kind)
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._bind(address)
        except OSError as error:
            raise ConfigError(
                f"cannot serve metrics on {host}:{port}: {error.strerror or error}; "
                "choose another address"
            ) from error
        self._listener.setblocking(False)  # noqa: FBT003 - the name of the method is enough
        self.port: int = self._listener.getsockname()[1]
        """Port of the server."""

        self._clients: dict[int, _Client] = {}
        self._poll = select.poll()
        self._stop, self._stopper = socket.socketpair()
        self._poll.register(self._stop, _READ)
        self._poll.register(self._listener, _READ)
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close all connections and release the port."""
        self._stopper.close()
        self._thread.join()
        for client in self._clients.values():
            client.connection.close()
        self._stop.close()
        self._listener.close()

    def _bind(self, address: tuple[object, ...]) -> None:
        try:
            self._listener.bind(address)
            self._listener.listen()
        except OSError:
            self._listener.close()
            raise

    def _run(self) -> None:
        while True:
            for fd, _ in self._poll.poll(self._timeout_ms()):
                if fd == self._stop.fileno():
                    return
                if fd == self._listener.fileno():
                    self._accept()
                elif fd in self._clients:
                    self._serve(self._clients[fd])
            now = time.monotonic()
            for client in [one for one in self._clients.values() if one.deadline <= now]:
                self._hang_up(client)

    def _timeout_ms(self) -> int | None:
        if not self._clients:
            return None
        left = min(client.deadline for client in self._clients.values()) - time.monotonic()
        return max(int(left * 1000) + 1, 0)

    def _accept(self) -> None:
        try:
            connection, peer = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):  # the client has closed it already
            return
        except OSError:
            time.sleep(_ACCEPT_PAUSE_S)
            return
        limits = ConnectionLimits(total=CLIENTS, per_address=CLIENTS)
        if old := connection_to_replace(self._clients.values(), str(peer[0]), limits):
            self._hang_up(old)
        connection.setblocking(False)  # noqa: FBT003 - the name of the method is enough
        client = _Client(connection, str(peer[0]), time.monotonic() + TIMEOUT_S)
        self._clients[connection.fileno()] = client
        self._poll.register(connection, _READ)

    def _hang_up(self, client: _Client) -> None:
        self._poll.unregister(client.connection)
        del self._clients[client.connection.fileno()]
        client.connection.close()

    def _serve(self, client: _Client) -> None:
        try:
            is_done = self._send(client) if client.answer else self._receive(client)
        except BlockingIOError:
            return
        except OSError:
            is_done = True
        if is_done:
            self._hang_up(client)

    def _receive(self, client: _Client) -> bool:
        """Read more; respond once the request is complete. Returns whether the client is done."""
        data = client.connection.recv(REQUEST_BYTES)
        if not data:
            return True
        client.request += data
        if _END not in client.request and len(client.request) < REQUEST_BYTES:
            return False
        client.answer = memoryview(self._answer(client.request))
        self._poll.modify(client.connection, select.POLLOUT)
        return self._send(client)

    def _send(self, client: _Client) -> bool:
        client.answer = client.answer[client.connection.send(client.answer) :]
        return not client.answer

    def _answer(self, request: bytes) -> bytes:
        fields = request.partition(b"\r\n")[0].decode("latin-1").split(" ")
        page = self._page(fields) if _END in request else HttpResponse("request too long\n", 431)
        body = page.text.encode()
        head = (
            f"HTTP/1.1 {page.status} {_REASONS[page.status]}\r\n"
            f"Content-Type: {page.content_type}\r\n"
            f"Content-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        return head.encode() + (b"" if fields[0] == "HEAD" else body)

    def _page(self, fields: list[str]) -> HttpResponse:
        match fields:
            case [method, path, version] if version.startswith("HTTP/"):
                page = self._pages.get(path.partition("?")[0])
                if method not in ("GET", "HEAD"):
                    return HttpResponse("only GET and HEAD are supported\n", 405)
                return (
                    HttpResponse("there is " + ", ".join(self._pages) + "\n", 404)
                    if page is None
                    else page()
                )
        return HttpResponse("no HTTP request\n", 400)
