"""Connections to the API: a timeout for requests, and a maximum number.

A client that sends nothing costs the server a file descriptor. Beyond the maximum, a new connection
replaces an old one, so requests and health probes are answered while others hold idle connections.
"""

import asyncio
import errno
import ipaddress
import os
import resource
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import h11
import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.apps.api.networks import ProxyNetwork
from holdfast.apps.api.tls import TlsContext
from holdfast.apps.listen_address import ListenAddress
from holdfast.kit.connections import ConnectionLimits, connection_to_replace
from holdfast.model.errors import ConfigError

TIMEOUT_S: Final = 10.0
"""Timeout for the head of a request. Clients on the same network send it at once."""

BACKLOG: Final = 64
"""Connections that wait in the kernel, and the most that are accepted before the old ones that they
replace are closed."""

LOG_INTERVAL_S: Final = 60.0
"""Interval at which a failure to accept connections is logged, while it lasts."""

_ACCEPT_PAUSE_S: Final = 0.1
_BUSY: Final = 1e12
"""Added to the replacement order of a connection whose request is complete."""

_HANDLED_BY_ASYNCIO: Final = (BlockingIOError, InterruptedError, ConnectionAbortedError)


class OpenConnections:
    """Open connections of a server, at most as many as its limits allow.

    Those of one loopback address or proxy may be of many clients, behind a reverse proxy or an SSH
    tunnel: only the total limits them.
    """

    def __init__(self, limits: ConnectionLimits, proxies: Sequence[ProxyNetwork] = ()) -> None:
        """Limit the total to half of the file descriptors of this process, too."""
        self._proxies = [ipaddress.ip_network(one.text) for one in proxies]
        self._handshakes: dict[tuple[str, int], tuple[socket.socket, float]] = {}
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._limits = limits if files < 0 else replace(limits, total=min(limits.total, files // 2))
        self._open: set[ApiConnection] = set()

    def add(self, connection: "ApiConnection") -> None:
        """Add a connection, and close the one that it replaces."""
        limits = self._limits
        if self._is_shared(connection.address):
            limits = replace(limits, per_address=limits.total)
        self._close(connection_to_replace(self._open, connection.address, limits))
        self._open.add(connection)

    def begin_handshake(self, accepted: socket.socket, address: tuple[str, int]) -> None:
        """Add a connection of which TLS is not established yet.

        asyncio waits a minute for each. Those that take longer than ``TIMEOUT_S`` are closed with
        the next connection, and the oldest beyond the limit of all connections.
        """
        now = time.monotonic()
        self._handshakes[address] = (accepted, now)
        waiting = [(at, key) for key, (one, at) in self._handshakes.items() if one.fileno() >= 0]
        excess = len(waiting) - self._limits.total
        late = {key for at, key in waiting if now - at > TIMEOUT_S}
        late |= {key for _, key in sorted(waiting)[: max(0, excess)]}
        for key in late:
            with suppress(OSError):  # it was closed meanwhile
                self._handshakes[key][0].shutdown(socket.SHUT_RDWR)
        self._handshakes = {key: self._handshakes[key] for _, key in waiting if key not in late}

    def end_handshake(self, address: tuple[str, int]) -> None:
        """Remove a connection of which TLS is established."""
        self._handshakes.pop(address, None)

    def _is_shared(self, address: str) -> bool:
        try:
            peer = ipaddress.ip_address(address)
        except ValueError:
            return False
        return peer.is_loopback or any(peer in one for one in self._proxies)

    def remove(self, connection: "ApiConnection") -> None:
        """Remove a connection that is closed."""
        self._open.discard(connection)

    def close_one(self) -> bool:
        """Close the connection that the next one would replace. Returns whether there was one."""
        none_more = ConnectionLimits(total=len(self._open), per_address=len(self._open) + 1)
        return bool(self._open) and self._close(connection_to_replace(self._open, "", none_more))

    def _close(self, connection: "ApiConnection | None") -> bool:
        if connection is None:
            return False
        self._open.discard(connection)
        connection.transport.abort()
        return True


class ApiConnection(H11Protocol):
    """Uvicorn's protocol, with a timeout: Uvicorn itself waits forever for the rest of a head."""

    _timeout: asyncio.TimerHandle | None = None
    _connections: OpenConnections
    address = ""
    """IP address of the client."""

    _opened_at = 0.0

    @classmethod
    def limited_by(cls, connections: OpenConnections) -> "type[ApiConnection]":
        """Protocol whose instances are in ``connections``."""
        return type(cls.__name__, (cls,), {"_connections": connections})

    @property
    def replacement_order(self) -> float:
        """Connections that wait for a request are first, then the oldest."""
        cycle = self.cycle
        is_waiting = cycle is None or cycle.response_complete or cycle.more_body
        return self._opened_at if is_waiting else self._opened_at + _BUSY

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        if self.client:
            self._connections.end_handshake(self.client)
        self._opened_at = time.monotonic()
        self._connections.add(self)
        self._start_timeout()

    def data_received(self, data: bytes) -> None:
        """Stop the timeout while a request is handled."""
        super().data_received(data)
        has_open_response = self.cycle is not None and not self.cycle.response_complete
        if has_open_response:
            self._stop_timeout()
        elif self._timeout is None:
            self._start_timeout()

    def send_400_response(self, msg: str) -> None:
        """Refuse a malformed request, also one whose head the application handles already.

        Uvicorn would log a traceback when the application answers: any client could fill the log.
        """
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            super().send_400_response(msg)
        else:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timeout."""
        self._stop_timeout()
        self._connections.remove(self)
        super().connection_lost(exc)

    def _start_timeout(self) -> None:
        self._timeout = self.loop.call_later(TIMEOUT_S, self.transport.close)

    def _stop_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None


class ApiListener(socket.socket):
    """Listening socket that frees file descriptors when it cannot accept a connection.

    asyncio would log the failure for each place in the backlog, 115 MB a minute.
    """

    def __init__(
        self,
        handle: int,
        connections: OpenConnections,
        report: Callable[[str], None],
        tls: TlsContext | None,
    ) -> None:
        """Take over the listening socket ``handle``; ``report`` logs a line."""
        super().__init__(fileno=handle)
        self._connections = connections
        self._report = report
        self._tls = tls
        self._reported_at = -LOG_INTERVAL_S
        self._spare: int | None = _open_spare()

    def close(self) -> None:
        """Close the socket and the spare file descriptor."""
        self._close_spare()
        super().close()

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection.

        Raises:
            BlockingIOError: there is none, or it could not be accepted.
            InterruptedError: a signal arrived.
            ConnectionAbortedError: the client has closed it already.

        """
        try:
            accepted, address = super().accept()
            if self._tls is not None:
                self._tls.refresh()
                self._connections.begin_handshake(accepted, address[:2])
            return accepted, address
        except _HANDLED_BY_ASYNCIO:
            raise
        except OSError as error:
            self._log(error)
            if not self._connections.close_one():
                self._refuse_one()
            raise BlockingIOError(errno.EAGAIN, error.strerror) from error

    def _refuse_one(self) -> None:
        """Close the next connection at once, in place of the spare file descriptor."""
        if self._spare is None:
            time.sleep(_ACCEPT_PAUSE_S)  # the listener stays ready
        else:
            self._close_spare()
            try:
                connection, _ = super().accept()
                connection.close()
            except OSError:
                time.sleep(_ACCEPT_PAUSE_S)
        self._spare = _open_spare()

    def _close_spare(self) -> None:
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def _log(self, error: OSError) -> None:
        now = time.monotonic()
        if now - self._reported_at < LOG_INTERVAL_S:
            return
        self._reported_at = now
        self._report(
            f"cannot accept connections: {error.strerror}; closing idle ones. Raise LimitNOFILE of "
            "this process, or lower max_connections"
        )


class OneLength:
    """ASGI application that refuses a request with two lengths, and closes its connection.

    A proxy in front may use the other length: it would take the end of the body for the next
    request, of another client (RFC 9112, section 6.1).
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        names = {name for name, _ in scope.get("headers", ())}
        if {b"content-length", b"transfer-encoding"} <= names:
            text = "Content-Length and Transfer-Encoding exclude each other\n"
            headers = {"connection": "close"}
            await PlainTextResponse(text, status_code=400, headers=headers)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def listening(
    address: ListenAddress,
    connections: OpenConnections,
    report: Callable[[str], None],
    tls: TlsContext | None = None,
) -> ApiListener:
    """Listening socket for an address; ``tls`` looks for renewed files with each connection.

    Raises:
        ConfigError: the address is in use, or is not one of this machine.

    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    where = (address.host, address.port)
    try:
        listener = socket.create_server(where, family=family, backlog=BACKLOG)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else error
        raise ConfigError(f"listen: cannot listen on {address}: {why}") from error
    # Connections inherit it. asyncio sets it only where a socket names its protocol; without it, an
    # answer in two parts waits 40 ms for the client's acknowledgement of the first.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return ApiListener(listener.detach(), connections, report, tls)


def api_server(
    application: ASGIApp, connections: OpenConnections, tls: TlsContext | None = None
) -> uvicorn.Server:
    """Server of an application; run it with the socket of ``listening``."""
    settings = uvicorn.Config(
        OneLength(application),
        ws="none",  # nothing uses WebSockets; their connections would have none of the limits
        http=ApiConnection.limited_by(connections),
        loop="asyncio",  # other loops do not call the listener's accept
        backlog=BACKLOG,
        log_level="error",  # a warning is of a malformed request: any client could fill the log
        access_log=False,
        server_header=False,
        proxy_headers=False,  # see TrustedProxies
        timeout_graceful_shutdown=5,
    )
    if tls is not None:
        settings.load()
        settings.ssl = tls.context
    return uvicorn.Server(settings)


def _open_spare() -> int | None:
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
