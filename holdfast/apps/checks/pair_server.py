"""Server of network tests between nodes: ``holdfast check serve``."""

import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from queue import SimpleQueue
from typing import Any, Final

from holdfast.adapters.host.accelerators import instance_type
from holdfast.adapters.host.pairs.channel import PairConnection, authenticate_as_server
from holdfast.adapters.host.pairs.table import PARTS
from holdfast.apps.checks.config import CheckConfig
from holdfast.apps.checks.node import node_name, target_of
from holdfast.apps.checks.pair import Other, check_pair
from holdfast.apps.clock import SystemClock
from holdfast.apps.listen_address import ListenAddress
from holdfast.kit.serial import to_plain
from holdfast.model.errors import BackendError
from holdfast.model.node_checks import Level, PartResult

PAIR: Final = "pair"
"""Request to this node to start the tests with another node."""

_UNAUTHENTICATED: Final = 32
"""Maximum connections that have not shown the token; a further one replaces the oldest. Clients
with the token are tested one at a time, the others get a busy response."""

_BACKLOG: Final = 4096
"""Connections that the kernel completes before they are accepted; the kernel may allow fewer. With
a full backlog a healthy node looks unreachable."""

_IDLE: Final = timedelta(seconds=60)
"""Maximum time between two tests of one connection."""

_POLL_S: Final = 0.2
_MAPPED: Final = "::ffff:"
"""Prefix of an IPv4 address on an IPv6 socket."""


class PairServer:
    """Listens for tests, and serves clients that have the token.

    Raises:
        BackendError: it cannot listen at the address.

    """

    def __init__(self, config: CheckConfig, address: ListenAddress, token: str) -> None:
        """Listen at ``address``; port 0 takes a free port."""
        self._target = target_of(
            config, config.instance_type or instance_type(config.root), Level.QUICK
        )
        self._config = config
        self._token = token
        self._testing = threading.Lock()
        self._unauthenticated: deque[socket.socket] = deque()
        self._changing = threading.Lock()
        is_any = not address.host and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if is_any or ":" in address.host else socket.AF_INET
        try:
            self._listener = socket.create_server(
                (address.host, address.port),
                family=family,
                backlog=_BACKLOG,
                dualstack_ipv6=is_any,
            )
        except OSError as error:
            raise BackendError(f"cannot listen at {address}: {error.strerror or error}") from error
        self._listener.settimeout(_POLL_S)

    @property
    def port(self) -> int:
        """Return the port on which it listens."""
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Stop listening; tests in progress end with this process."""
        self._listener.close()

    def serve(self, log: Callable[[str], None], *, is_over: Callable[[], bool]) -> None:
        """Serve all clients, each in a thread, until ``is_over`` returns True."""
        while not is_over():
            self._accept(partial(self._answer, log=log))

    def serve_one(self, *, wait: timedelta) -> None:
        """Serve all tests of the first client that has the token.

        Raises:
            BackendError: no client connected in time, or the tests were interrupted.

        """
        deadline = time.monotonic() + wait.total_seconds()
        clients: SimpleQueue[tuple[socket.socket, PairConnection]] = SimpleQueue()
        while clients.empty():
            if time.monotonic() >= deadline:
                raise BackendError(f"no other node connected within {wait.total_seconds():g} s")
            self._accept(partial(self._admit, clients=clients))
        connection, channel = clients.get()
        with connection:
            self._serve_peer(channel)

    def _accept(self, handle: Callable[[socket.socket, str], None]) -> None:
        """Accept a connection, if there is one soon, and handle it in a thread.

        A client that does not show the token keeps no other one waiting.
        """
        try:
            connection, address = self._listener.accept()
        except (TimeoutError, ConnectionError):  # the client may be gone before it is accepted
            return
        with self._changing:
            self._unauthenticated.append(connection)
            is_full = len(self._unauthenticated) > _UNAUTHENTICATED
            oldest = self._unauthenticated.popleft() if is_full else None
        if oldest is not None:
            with suppress(OSError):  # its thread may just have closed it, and closes it otherwise
                oldest.shutdown(socket.SHUT_RDWR)
        host = address[0].removeprefix(_MAPPED)
        threading.Thread(target=handle, args=(connection, host), daemon=True).start()

    def _authenticated(self, connection: socket.socket) -> PairConnection:
        """Wait until a client has shown the token.

        Raises:
            BackendError: it does not have it, does not respond, or others came meanwhile.

        """
        try:
            return authenticate_as_server(connection, self._token)
        finally:
            with self._changing, suppress(ValueError):  # it was one of the oldest
                self._unauthenticated.remove(connection)

    def _admit(
        self,
        connection: socket.socket,
        _host: str,
        *,
        clients: SimpleQueue[tuple[socket.socket, PairConnection]],
    ) -> None:
        """Pass a client on that has the token."""
        try:
            channel = self._authenticated(connection)
        except BackendError:
            connection.close()
        else:
            clients.put((connection, channel))

    def _answer(self, connection: socket.socket, host: str, *, log: Callable[[str], None]) -> None:
        try:
            with connection:
                channel = self._authenticated(connection)
                if not self._testing.acquire(blocking=False):
                    channel.send({"busy": "it is being tested with another node"})
                    return
                try:
                    self._serve_peer(channel)
                finally:
                    self._testing.release()
            log(f"{host}: tested")
        except BackendError as error:
            log(f"{host}: {error}")

    def _serve_peer(self, channel: PairConnection) -> None:
        channel.send({"node": node_name()})
        served = {part.name: part.serve for part in PARTS}
        while True:
            channel.allow(_IDLE, stall=_IDLE)
            message = channel.receive()
            match message.get("do"):
                case "bye":
                    return
                case str(name) if name in served:
                    served[name](self._target, channel, message)
                case "pair":
                    channel.send(self._begin(message))
                case other:
                    raise BackendError(f"unsupported message {other!r}")

    def _begin(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Test this node with another one, on request."""
        try:
            other = Other(
                address=ListenAddress.parse(message.get("with")),
                token=self._token,
                wait=timedelta(seconds=float(message.get("wait_s", 0.0))),
            )
            names = [str(name) for name in message.get("tests", ())]
            result = check_pair(self._config, other, names, Unwatched(), SystemClock())
        except (BackendError, ValueError) as error:
            return {"error": str(error)}
        return {"check": to_plain(result)}


class Unwatched:
    """Watcher that ignores all calls."""

    def begun(self, name: str, plan: object, left: timedelta) -> None:
        """See ``Watcher.begun``."""

    def ended(self, result: PartResult) -> None:
        """See ``Watcher.ended``."""
