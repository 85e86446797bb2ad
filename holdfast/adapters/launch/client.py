"""A launcher's side of the connection to its coordinator."""

import os
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from holdfast.adapters.launch.channel import Channel, ChannelClosed
from holdfast.adapters.launch.messages import event_message, read_order, read_run
from holdfast.decisions.launch_events import Reported
from holdfast.decisions.launch_orders import Order, OrderKind
from holdfast.decisions.launch_runs import RunName

_Address = tuple[int, int, int, str, Any]
"""Result of ``socket.getaddrinfo``."""

_RETRY_S: Final = 0.2
_HEARTBEATS_PER_LEASE: Final = 4


class CoordinatorLink:
    """Connection that is renewed, and the lease that the coordinator grants.

    The lease ends ``lease_s`` after the *sending* of the last heartbeat that was answered. The
    coordinator counts from its arrival, so it never takes a launcher for lost before.
    """

    def __init__(
        self,
        endpoint: tuple[str, int],
        key: bytes,
        lease_s: float,
        renewed: Callable[[float], None],
        run: RunName,
    ) -> None:
        self._endpoint = endpoint
        self._key = key
        self._lease_s = lease_s
        self._renewed = renewed
        self._run = run
        self._channel: Channel | None = None
        self._connecting: socket.socket | None = None
        self._address: _Address | None = None
        self._is_accepted = False
        self._retry_at = 0.0
        self._next_heartbeat_at = 0.0
        self._orders: deque[Order] = deque()
        self.lease_until = 0.0
        """Monotonic time until which ranks may run."""

        self.lost_since = time.monotonic()
        """Monotonic time of the loss of the connection; infinite while there is one."""

        self.problem = ""
        """Why there is no connection."""

        self.is_taken = False
        """Whether the last coordinator at the endpoint was that of another run."""

    def is_connected(self) -> bool:
        """Return whether events can be sent."""
        return self._channel is not None and self._is_accepted

    def local_address(self) -> str:
        """Return this machine's address as the coordinator sees it; empty without connection."""
        return self._channel.local_address() if self._channel is not None else ""

    def readers(self) -> list[int]:
        """Return the descriptors to watch for input."""
        return [self._channel.fileno()] if self._channel is not None else []

    def writers(self) -> list[int]:
        """Return the descriptors to watch until they are writable."""
        if self._connecting is not None:
            return [self._connecting.fileno()]
        if self._channel is not None and self._channel.has_unsent():
            return [self._channel.fileno()]
        return []

    def next_call(self) -> float:
        """Return the monotonic time of the next call of ``advance``."""
        if self._channel is None:
            return self._retry_at
        return min(self._next_heartbeat_at, self.lease_until)

    def advance(self, *, may_resolve: bool) -> list[Order]:
        """Connect, send heartbeats, and return the orders that have arrived.

        Args:
            may_resolve: whether the name of the endpoint may be looked up again, which may block.

        """
        now = time.monotonic()
        try:
            if self._channel is None:
                self._connect(now, may_resolve=may_resolve)
            if self._channel is not None:
                self._exchange(self._channel, now)
        except (ChannelClosed, ValueError, OSError) as error:
            self._disconnect(str(error), now)
        orders = list(self._orders)
        self._orders.clear()
        if self._channel is None:  # the round may be over, as after a pause: no rank may start
            orders = [_without_run(one) for one in orders]
        return orders

    def send(self, event: Reported) -> None:
        """Report an event; without a connection it is dropped, and joining again replaces it."""
        if self._channel is not None:
            try:
                self._channel.send(event_message(event))
            except ChannelClosed as error:
                self._disconnect(str(error), time.monotonic())

    def close(self) -> None:
        """Close the connection."""
        for one in (self._channel, self._connecting):
            if one is not None:
                one.close()
        self._channel = self._connecting = None

    def _connect(self, now: float, *, may_resolve: bool) -> None:
        if self._connecting is None:
            if now < self._retry_at:
                return
            self._retry_at = now + self._lease_s  # of an attempt without an answer
            if may_resolve or self._address is None:
                self._address = _resolved(self._endpoint)
            family, kind, protocol, _, address = self._address
            self._connecting = socket.socket(family, kind, protocol)
            self._connecting.settimeout(0)
            with suppress(BlockingIOError):
                self._connecting.connect(address)
        error = self._connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))
        try:
            self._connecting.getpeername()
        except OSError:  # not connected yet
            if now >= self._retry_at:
                raise
            return
        self._channel = Channel(self._connecting, self._key, is_server=False)
        self._connecting = None
        self._next_heartbeat_at, self.lease_until = now, now + self._lease_s
        self._is_accepted = False

    def _exchange(self, channel: Channel, now: float) -> None:
        channel.flush()
        for message in channel.receive():
            self._check_run(message)
            self._is_accepted = True  # it was signed with the key
            self.is_taken = False
            self.lost_since = float("inf")
            if isinstance(sent_at := message.get("heartbeat"), float) and sent_at <= now:
                self.lease_until = max(self.lease_until, sent_at + self._lease_s)
                self._renewed(self.lease_until)
            order = read_order(message)
            if order is not None:
                self._orders.append(order)
        if now >= self.lease_until:
            raise ChannelClosed("the coordinator does not respond")
        if now >= self._next_heartbeat_at:
            channel.send({"heartbeat": now})
            self._next_heartbeat_at = now + self._lease_s / _HEARTBEATS_PER_LEASE

    def _check_run(self, message: dict[str, Any]) -> None:
        other = read_run(message)
        if other is not None and not other.is_of(self._run):
            self.is_taken = True
            host, port = self._endpoint
            raise ChannelClosed(
                f"endpoint {host}:{port} is used by {other}; choose another --rdzv-endpoint, or "
                "end that job first"
            )

    def _disconnect(self, problem: str, now: float) -> None:
        if self._channel is not None and not (self._is_accepted or self.is_taken):
            problem += "; give all launchers the same HOLDFAST_LAUNCH_KEY"
        self.close()
        self.problem = problem
        self._retry_at = now + (self._lease_s if self.is_taken else _RETRY_S)
        self.lost_since = min(self.lost_since, now)


def _without_run(order: Order) -> Order:
    """Return an order that starts no ranks; round and history stay known."""
    return replace(order, kind=OrderKind.WAIT) if order.kind is OrderKind.RUN else order


def _resolved(endpoint: tuple[str, int]) -> _Address:
    return socket.getaddrinfo(*endpoint, type=socket.SOCK_STREAM)[0]
