"""The coordinator's side of the connections to launchers."""

import socket
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from holdfast.adapters.launch.channel import Channel, ChannelClosed
from holdfast.adapters.launch.messages import order_message, read_event, run_message
from holdfast.decisions.launch_events import Event, Joined, Lost
from holdfast.decisions.launch_orders import Order
from holdfast.decisions.launch_runs import RunName

MAX_CONNECTIONS: Final = 4096
_BACKLOG: Final = 1024
_ACCEPT_PAUSE_S: Final = 0.1
"""Pause after a connection could not be accepted."""


@dataclass(slots=True)
class _Launcher:
    channel: Channel
    silent_from: float
    """Monotonic time at which its lease ends."""

    name: str = ""
    sent: Order | None = None
    has_key: bool = False
    """Whether a message has arrived; each is authenticated."""


class LauncherServer:
    """Accepts launchers, passes on their events, and sends them orders that changed.

    A launcher is lost when its connection ends, or when its last heartbeat is older than the lease.
    It ends its ranks itself when it has no response to a heartbeat for as long as that. If there
    are ``most`` connections, a further one replaces the oldest that has not shown the key.
    The first message to each is the name of the run: launchers of others do not join.
    """

    def __init__(
        self,
        listener: socket.socket,
        key: bytes,
        lease_s: float,
        handle: Callable[[Event], object],
        run: RunName,
        most: int = MAX_CONNECTIONS,
    ) -> None:
        listener.listen(_BACKLOG)
        listener.settimeout(0)
        self._listener = listener
        self._key = key
        self._lease_s = lease_s
        self._handle = handle
        self._most = most
        self._run = run
        self._accept_at = 0.0
        self._launchers: dict[int, _Launcher] = {}
        """By descriptor."""

        self._basis: tuple[object, ...] = ()
        """Of the orders that were sent last."""

    def readers(self) -> list[int]:
        """Return the descriptors to watch for input."""
        accepts = time.monotonic() >= self._accept_at
        return [*([self._listener.fileno()] if accepts else []), *self._launchers]

    def writers(self) -> list[int]:
        """Return the descriptors to watch until they are writable."""
        return [key for key, one in self._launchers.items() if one.channel.has_unsent()]

    def next_call(self) -> float | None:
        """Return the monotonic time of the next end of a lease, or of a pause in accepting."""
        times = [one.silent_from for one in self._launchers.values()]
        if self._accept_at > time.monotonic():
            times.append(self._accept_at)
        return min(times, default=None)

    def advance(self, ready: Collection[int]) -> None:
        """Read what has arrived, and drop launchers that are lost.

        Args:
            ready: descriptors with input, or that are writable.

        """
        if self._listener.fileno() in ready:
            self._accept()
        for launcher in [self._launchers[key] for key in ready if key in self._launchers]:
            try:
                with suppress(ChannelClosed):  # what it has sent before counts
                    launcher.channel.flush()
                self._read(launcher)
            except (ChannelClosed, ValueError):
                self._drop(launcher)
        now = time.monotonic()
        for launcher in [one for one in self._launchers.values() if now >= one.silent_from]:
            self._drop(launcher)

    def send_orders(
        self,
        orders_for: Callable[[Collection[str]], Mapping[str, Order]],
        basis: Collection[object],
    ) -> None:
        """Send each launcher its order if it has changed.

        Args:
            orders_for: returns the orders of launchers.
            basis: objects from which it makes them. While they are the same objects, there is
                nothing to send: a thousand launchers send 2,000 heartbeats in a second, and to
                make their orders for each takes longer than to answer it.

        """
        if [*map(id, basis)] == [*map(id, self._basis)]:
            return
        self._basis = tuple(basis)
        joined = [one for one in self._launchers.values() if one.name]
        orders = orders_for([one.name for one in joined])
        for launcher in joined:
            order = orders[launcher.name]
            if order != launcher.sent:
                launcher.sent = order
                with suppress(ChannelClosed):  # seen by the next ``advance``
                    launcher.channel.send(order_message(order))

    def has_launchers(self) -> bool:
        """Return whether a launcher is connected."""
        return bool(self._launchers)

    def close(self) -> None:
        """Close all connections."""
        for launcher in self._launchers.values():
            launcher.channel.close()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:  # as without free descriptors: it stays readable
                self._accept_at = time.monotonic() + _ACCEPT_PAUSE_S
                return
            if len(self._launchers) >= self._most and not self._make_room():
                connection.close()
                continue
            channel = Channel(connection, self._key, is_server=True)
            launcher = _Launcher(channel, time.monotonic() + self._lease_s)
            self._launchers[connection.fileno()] = launcher
            with suppress(ChannelClosed):  # seen by the next ``advance``
                channel.send(run_message(self._run))

    def _make_room(self) -> bool:
        """Close the oldest connection without the key; return whether there was one."""
        unknown = next((one for one in self._launchers.values() if not one.has_key), None)
        if unknown is not None:
            self._drop(unknown)
        return unknown is not None

    def _read(self, launcher: _Launcher) -> None:
        for message in launcher.channel.receive():
            launcher.has_key = True
            launcher.silent_from = time.monotonic() + self._lease_s
            if "heartbeat" in message:
                with suppress(ChannelClosed):  # seen by the next call
                    launcher.channel.send({"heartbeat": message["heartbeat"]})
            event = read_event(message)
            if isinstance(event, Joined):
                self._replace(launcher, event.member.name)
                self._handle(event)
            elif event is not None and event.launcher == launcher.name:
                self._handle(event)

    def _replace(self, launcher: _Launcher, name: str) -> None:
        """Close an older connection of the same launcher."""
        for key, other in list(self._launchers.items()):
            if other.name == name and other is not launcher:
                del self._launchers[key]
                other.channel.close()
        launcher.name, launcher.sent = name, None

    def _drop(self, launcher: _Launcher) -> None:
        if self._launchers.pop(launcher.channel.fileno(), None) is not None:
            launcher.channel.close()
            if launcher.name:
                self._handle(Lost(launcher=launcher.name))
