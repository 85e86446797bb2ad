"""Latency and bandwidth of one TCP connection between two instances of this program.

It shows whether the network between two nodes works, not how fast a job can use it: one connection
has less bandwidth than the network, and EFA, InfiniBand and NVLink are not measured at all.
"""

import statistics
import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from holdfast.adapters.host.deep_checks.contract import CommandResult, Series, Target
from holdfast.adapters.host.pairs.channel import PairConnection
from holdfast.adapters.host.pairs.contract import Peer, pair_finding
from holdfast.detectors.judgement import whole
from holdfast.model.errors import BackendError

NAME: Final = "tcp"

_ROUNDS: Final = 200
_LIMIT: Final = timedelta(seconds=70)
"""Timeout of the whole test, including data still in the buffers of a slow link."""

_LONGEST_S: Final = 20.0
"""Maximum time this end sends, whatever the peer requests."""

_PING: Final = 64
_BLOCK: Final = 64 * 1024
_MORE: Final = b"+"
_ENDS: Final = b"."


def measure(target: Target, peer: Peer) -> Series:
    """Measure from the client side."""
    return Series(
        argv=("tcp", peer.host),
        takes=3 * target.pair_time,
        make=partial(_make, peer.channel, target.pair_time.total_seconds()),
    )


def serve(target: Target, channel: PairConnection, message: Mapping[str, Any]) -> None:
    """Echo messages, count received data, then send."""
    channel.allow(_LIMIT)
    while (ping := channel.read(_PING))[:1] == _MORE:
        channel.write(ping)
    channel.send({"bytes": _drain(channel)})
    seconds = message.get("seconds", target.pair_time.total_seconds())
    _fill(channel, min(float(seconds), _LONGEST_S))


def _make(channel: PairConnection, seconds: float, now: datetime) -> CommandResult:
    channel.allow(_LIMIT)
    try:
        channel.send({"do": NAME, "seconds": seconds})
        times = _round_trips(channel, seconds)
        rates = [_rate_there(channel, seconds), _rate_back(channel)]
    except BackendError as error:
        return CommandResult(
            judgement=whole([pair_finding(f"a TCP connection failed: {error}", now)])
        )
    return CommandResult(
        judgement=whole([]),
        measured={
            "pair_tcp_us": statistics.median(times) * 1e6,
            "pair_tcp_mb_per_s": min(rates) / 1e6,
        },
    )


def _round_trips(channel: PairConnection, seconds: float) -> list[float]:
    times: list[float] = []
    end = time.monotonic() + seconds
    while not times or (len(times) < _ROUNDS and time.monotonic() < end):
        began = time.perf_counter()
        channel.write(_MORE * _PING)
        channel.read(_PING)
        times.append(time.perf_counter() - began)
    channel.write(_ENDS * _PING)
    return times


def _rate_there(channel: PairConnection, seconds: float) -> float:
    """Return bytes per second until the peer confirms that it received all of them."""
    began = time.perf_counter()
    sent = _fill(channel, seconds)
    if channel.receive().get("bytes") != sent:
        raise channel.give_up("the peer did not receive all data that was sent")
    return sent / (time.perf_counter() - began)


def _rate_back(channel: PairConnection) -> float:
    began = time.perf_counter()
    received = _drain(channel)
    return received / (time.perf_counter() - began)


def _fill(channel: PairConnection, seconds: float) -> int:
    """Send blocks for ``seconds``. Returns the number of bytes."""
    block, sent = _MORE * _BLOCK, 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        channel.write(block)
        sent += _BLOCK
    channel.write(_ENDS * _BLOCK)
    return sent + _BLOCK


def _drain(channel: PairConnection) -> int:
    """Receive blocks up to the last one. Returns the number of bytes."""
    received = _BLOCK
    while channel.read(_BLOCK)[:1] == _MORE:
        received += _BLOCK
    return received
