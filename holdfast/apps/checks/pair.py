"""Network tests between this node and another one that runs ``holdfast check serve``."""

import errno
import socket
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from holdfast.adapters.host.accelerators import instance_type
from holdfast.adapters.host.deep_checks.contract import Skip, Target
from holdfast.adapters.host.deep_checks.run import make_part
from holdfast.adapters.host.pairs.channel import STALL, PairConnection, authenticate_as_client
from holdfast.adapters.host.pairs.contract import Peer, pair_finding
from holdfast.adapters.host.pairs.table import PARTS
from holdfast.apps.checks.config import CheckConfig
from holdfast.apps.checks.node import Watcher, node_name, target_of
from holdfast.apps.listen_address import ListenAddress
from holdfast.model.deep_checks import Outcome
from holdfast.model.errors import BackendError
from holdfast.model.node_checks import Level, NodeCheck, PartResult
from holdfast.ports.clock import Clock

CONNECT: Final = "connect"
"""Name of the only part of a check if the other node is unreachable."""

_UNREACHED: Final = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ETIMEDOUT, errno.EHOSTDOWN)
_AGAIN_S: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """The other node of a test."""

    address: ListenAddress
    token: str
    wait: timedelta
    """How long to wait until it listens and is free."""


class _Unreachable(Exception):
    """The node does not respond to packets."""


class _Busy(Exception):
    """The node is busy, or does not listen yet."""


def check_pair(
    config: CheckConfig, other: Other, names: Collection[str], watcher: Watcher, clock: Clock
) -> NodeCheck:
    """Run the tests called ``names``, one after the other.

    Raises:
        BackendError: the other node does not listen, has a different token, or is busy.

    """
    kind = config.instance_type or instance_type(config.root)
    target = target_of(config, kind, Level.QUICK)
    started_at, began = clock.now(), time.monotonic()
    name = str(other.address)
    try:
        with _session(other) as (channel, name):
            peer = Peer(host=other.address.host, channel=channel)
            parts = tuple(_parts(names, target, peer, watcher, clock))
            with suppress(BackendError):  # the node may be gone after a failed test
                channel.send({"do": "bye"})
    except _Unreachable as error:
        finding = pair_finding(f"{other.address} does not respond: {error}", clock.now())
        result = PartResult(
            name=CONNECT,
            outcome=Outcome.FAILED,
            detail=finding.message,
            command=("tcp", str(other.address)),
            took_s=time.monotonic() - began,
            findings=(finding,),
        )
        parts = (result,)
    return NodeCheck(
        node=node_name(),
        peer=name,
        instance_type=kind,
        level=Level.QUICK,
        started_at=started_at,
        parts=parts,
    )


@contextmanager
def session(other: Other) -> Iterator[tuple[PairConnection, str]]:
    """Open a session with the other node. Yields the channel and the name of the node.

    Raises:
        BackendError: see ``check_pair``; also if the node does not respond at all.

    """
    try:
        with _session(other) as found:
            yield found
    except _Unreachable as error:
        raise BackendError(f"{other.address} does not respond: {error}") from error


@contextmanager
def _session(other: Other) -> Iterator[tuple[PairConnection, str]]:
    deadline = time.monotonic() + other.wait.total_seconds()
    while True:
        try:
            connection, channel, name = _try(other)
            break
        except _Busy as error:
            if time.monotonic() > deadline:
                raise BackendError(str(error)) from error
        time.sleep(_AGAIN_S)
    with connection:
        yield channel, name


def _try(other: Other) -> tuple[socket.socket, PairConnection, str]:
    connection = _connect(other.address)
    try:
        channel = authenticate_as_client(connection, other.token)
        answer = channel.receive()
    except BackendError as error:
        connection.close()
        raise BackendError(f"{other.address}: {error}") from error
    if busy := answer.get("busy"):
        connection.close()
        raise _Busy(f"{other.address} is busy: {busy}; try again later")
    return connection, channel, str(answer.get("node", other.address))


def _connect(address: ListenAddress) -> socket.socket:
    try:
        return socket.create_connection((address.host, address.port), STALL.total_seconds())
    except socket.gaierror as error:  # the name of a pod is known a moment after its start
        raise _Busy(f"{address.host} cannot be resolved: {error.strerror}") from error
    except ConnectionRefusedError as error:
        raise _Busy(
            f"nothing listens at {address}: start `holdfast check serve` there, or check its "
            "--listen"
        ) from error
    except OSError as error:
        if isinstance(error, TimeoutError) or error.errno in _UNREACHED:
            raise _Unreachable(error.strerror or f"no response within {STALL.seconds} s") from error
        raise BackendError(f"cannot connect to {address}: {error.strerror or error}") from error


def _parts(
    names: Collection[str], target: Target, peer: Peer, watcher: Watcher, clock: Clock
) -> Iterator[PartResult]:
    for part in PARTS:
        if part.name not in names:
            continue
        try:
            plan = part.measure(target, peer)
        except BackendError as error:
            result = PartResult(name=part.name, outcome=Outcome.UNKNOWN, detail=str(error))
        else:
            if not isinstance(plan, Skip):
                watcher.begun(part.name, plan, plan.takes)
            result = make_part(part.name, plan, target, clock)
        watcher.ended(result)
        yield result
