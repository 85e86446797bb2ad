"""All-reduce over TCP whose sums are bitwise equal, however often they are repeated.

The ranks form a star around rank 0, which adds their vectors in the order of the ranks: floating
point addition is not associative, so a sum in the order of arrival would differ between runs.
"""

import hashlib
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import timedelta
from types import TracebackType

import numpy as np

from holdfast.apps.demo.char_model import Vector
from holdfast.apps.demo.options import RankEnvironment
from holdfast.apps.demo.replica import PeerLost
from holdfast.kit.units import format_duration
from holdfast.model.errors import ConfigError

_HELLO = struct.Struct(">8s32sI")
"""Magic bytes, SHA-256 of the values that must be equal on all ranks, rank."""

_MAGIC = b"HFRANKS1"
_LENGTH = struct.Struct(">Q")

_RETRY_PAUSE = 0.02
"""Seconds between attempts to reach rank 0, which may start a little later."""

_HELLO_TIMEOUT = 1.0
"""Seconds for a client on the port to send its hello; ranks do so at once."""


class RankGroup:
    """The connections of one rank: rank 0 to all others, the others to rank 0."""

    def __init__(self, links: Mapping[int, socket.socket], timeout: timedelta) -> None:
        self._links = dict(sorted(links.items()))
        self._timeout = timeout
        self._is_root = 0 not in links
        for link in self._links.values():
            link.settimeout(timeout.total_seconds())
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def sum(self, vector: Vector) -> None:
        """Replace ``vector``, of equal length on all ranks, by the sum over all ranks.

        Raises:
            PeerLost: a rank closed its connection or sent nothing for longer than the timeout.

        """
        content = vector.data.cast("B")
        if not self._is_root:
            self.send(0, content)
            self._receive(0, content)
            return
        addend = np.empty_like(vector)
        for rank in self._links:
            self._receive(rank, addend.data.cast("B"))
            vector += addend
        for rank in self._links:
            self.send(rank, content)

    def broadcast(self, payload: bytes) -> bytes:
        """Broadcast the payload of rank 0 to all ranks.

        Raises:
            PeerLost: as for ``sum``.

        """
        if self._is_root:
            for rank in self._links:
                self.send(rank, memoryview(_LENGTH.pack(len(payload)) + payload))
            return payload
        length = bytearray(_LENGTH.size)
        self._receive(0, memoryview(length))
        content = bytearray(_LENGTH.unpack(length)[0])
        self._receive(0, memoryview(content))
        return bytes(content)

    def __enter__(self) -> "RankGroup":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for link in self._links.values():
            link.close()

    def send(self, rank: int, content: memoryview) -> None:
        """Send to a rank that this rank is connected to.

        Raises:
            PeerLost: as for ``sum``.

        """
        try:
            self._links[rank].sendall(content)
        except OSError as error:
            raise self._lost(rank, error) from error

    def _receive(self, rank: int, content: memoryview) -> None:
        try:
            _receive_into(self._links[rank], content)
        except OSError as error:
            raise self._lost(rank, error) from error

    def _lost(self, rank: int, error: OSError) -> PeerLost:
        silent = f"no message for {format_duration(self._timeout)}"
        why = silent if isinstance(error, TimeoutError) else error.strerror or str(error)
        return PeerLost(f"lost rank {rank}: {why}; restart all ranks to resume")


def join(
    environment: RankEnvironment, run: str, *, join_timeout: timedelta, peer_timeout: timedelta
) -> RankGroup:
    """Connect to the other ranks at ``MASTER_ADDR`` and ``MASTER_PORT``; return when all joined.

    ``run`` must be the same text on all ranks.

    Raises:
        ConfigError: the port is taken, or a rank belongs to another run.
        PeerLost: not all ranks joined in time.

    """
    if environment.world_size == 1:
        return RankGroup({}, peer_timeout)
    hello = hashlib.sha256(f"{run} world_size={environment.world_size}".encode()).digest()
    deadline = time.monotonic() + join_timeout.total_seconds()
    with ExitStack() as on_failure:
        if environment.rank == 0:
            links = _gather(environment, hello, deadline, on_failure)
        else:
            links = {0: on_failure.enter_context(_reach_root(environment, deadline))}
        joining = RankGroup(links, join_timeout)
        if environment.rank != 0:
            joining.send(0, memoryview(_HELLO.pack(_MAGIC, hello, environment.rank)))
        joining.broadcast(b"")  # rank 0 sends this when all have joined
        on_failure.pop_all()
    return RankGroup(links, peer_timeout)


def _gather(
    environment: RankEnvironment, hello: bytes, deadline: float, on_failure: ExitStack
) -> dict[int, socket.socket]:
    """Return the connections to all other ranks, by rank."""
    links: dict[int, socket.socket] = {}
    with _listen(environment) as server:
        while len(links) < environment.world_size - 1:
            server.settimeout(max(_RETRY_PAUSE, deadline - time.monotonic()))
            try:
                link, _ = server.accept()
            except TimeoutError:
                missing = sorted(set(range(1, environment.world_size)) - set(links))
                raise PeerLost(
                    f"did not join in time: ranks {missing} of {environment.world_size}"
                ) from None
            on_failure.callback(link.close)
            rank = _greet(link, hello)
            if rank is None:
                link.close()
            elif rank in links:
                raise ConfigError(f"two processes joined as rank {rank}: check RANK")
            else:
                links[rank] = link
    return links


def _listen(environment: RankEnvironment) -> socket.socket:
    address, port = environment.master_addr, environment.master_port
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family, backlog=environment.world_size)
    except OSError as error:
        why = str(error.strerror).partition(" (")[0]  # create_server appends the address
        raise ConfigError(
            f"cannot listen at MASTER_ADDR={address} MASTER_PORT={port}: {why}; "
            "choose another port or address"
        ) from error


def _greet(link: socket.socket, hello: bytes) -> int | None:
    """Return the rank of the peer; None if it is not a rank of such a job."""
    content = bytearray(_HELLO.size)
    link.settimeout(_HELLO_TIMEOUT)
    try:
        _receive_into(link, memoryview(content))
    except OSError:
        return None
    magic, peer_hello, rank = _HELLO.unpack(content)
    if magic != _MAGIC:
        return None
    if peer_hello != hello:
        raise ConfigError(
            f"rank {rank} runs another job than rank 0; start all ranks with the same options, "
            "the same WORLD_SIZE and the same release of Python"
        )
    return int(rank)


def _reach_root(environment: RankEnvironment, deadline: float) -> socket.socket:
    address = (environment.master_addr, environment.master_port)
    while True:
        try:
            link = socket.create_connection(address, max(_RETRY_PAUSE, deadline - time.monotonic()))
        except OSError as error:
            if time.monotonic() + _RETRY_PAUSE > deadline:
                where = f"{address[0]} port {address[1]}"
                raise PeerLost(f"rank 0 not reached in time at {where}: {error}") from error
            time.sleep(_RETRY_PAUSE)
            continue
        if link.getsockname() != link.getpeername():
            return link
        # The kernel chose the target port as the source port, so the socket is connected to itself.
        # Without a reset on closing, the port would be taken for a minute: TIME_WAIT.
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        link.close()


def _receive_into(link: socket.socket, content: memoryview) -> None:
    """Fill ``content``.

    Raises:
        OSError: the link is closed or broken, ``TimeoutError`` if it is silent.

    """
    while content:
        size = link.recv_into(content)
        if size == 0:
            raise ConnectionError("connection closed")
        content = content[size:]
