"""``fi_pingpong`` of libfabric between two nodes, over each of their EFA devices."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from holdfast.adapters.host.commands import NotStarted, background_command
from holdfast.adapters.host.deep_checks.contract import (
    CommandResult,
    Series,
    Skip,
    Target,
    missing_tool,
)
from holdfast.adapters.host.network import efa_devices
from holdfast.adapters.host.pairs.channel import PairConnection
from holdfast.adapters.host.pairs.contract import Peer, pair_finding
from holdfast.adapters.host.pingpong import RUNS, TIMEOUT, Fabric, free_port, run_client
from holdfast.detectors.judgement import undecided, whole
from holdfast.detectors.pingpong import Exchange
from holdfast.model.errors import BackendError

NAME: Final = "fi_pingpong"

_EFA: Final = "efa"
_TAKES: Final = timedelta(seconds=3)
_RUN: Final = TIMEOUT + timedelta(seconds=20)
"""Timeout of one run including the wait for its server."""


def measure(target: Target, peer: Peer) -> Series | Skip:
    """Measure from the client side, if both sides support the test."""
    fabrics = _fabrics(target)
    if isinstance(fabrics, Skip):
        return fabrics
    peer.channel.allow(_RUN)
    peer.channel.send({"do": NAME, "provider": target.fabric_provider, "devices": len(fabrics)})
    answer = peer.channel.receive()
    if why := str(answer.get("skip") or ""):
        return Skip(why=f"{peer.host}: {why}")
    return Series(
        argv=fabrics[0].client(RUNS[-1], 0, peer.host),
        takes=_TAKES * len(fabrics),
        make=partial(_make, fabrics, peer),
    )


def serve(target: Target, channel: PairConnection, message: Mapping[str, Any]) -> None:
    """Start a server for each run that the client requests."""
    fabrics = _fabrics(target)
    why = fabrics.why if isinstance(fabrics, Skip) else _mismatch(target, fabrics, message)
    channel.send({"skip": why})
    if why or isinstance(fabrics, Skip):
        return
    for fabric in fabrics:
        for run in RUNS:
            channel.allow(_RUN, stall=_RUN)
            port = free_port()
            with background_command(fabric.server(run, port)) as server:
                channel.send({"port": port})
                continues = channel.receive().get("continues")
                channel.send({"output": server.output()[-500:]})
            if not continues:
                break


def _fabrics(target: Target) -> list[Fabric] | Skip:
    provider = target.fabric_provider
    domains = [""]
    if provider == _EFA:
        domains = [f"{device}-rdm" for device in efa_devices(target.machine.root)]
        if not domains:
            return Skip(why="no EFA device found")
    program = target.machine.find("fi_pingpong")
    if program is None:
        return missing_tool("fi_pingpong")
    return [Fabric(program=program, provider=provider, domain=domain) for domain in domains]


def _mismatch(target: Target, fabrics: list[Fabric], message: Mapping[str, Any]) -> str:
    if message.get("provider") != target.fabric_provider:
        return f"configured for provider {target.fabric_provider}"
    if message.get("devices") != len(fabrics):
        return f"has {len(fabrics)} devices, the peer {message.get('devices')}"
    return ""


def _make(fabrics: list[Fabric], peer: Peer, now: datetime) -> CommandResult:
    exchange = [_exchange(fabric, peer) for fabric in fabrics]
    names = [fabric.domain or fabric.provider for fabric in fabrics]
    faults = [
        f"{name}: {one.fault}" for name, one in zip(names, exchange, strict=True) if one.fault
    ]
    if faults:
        return CommandResult(judgement=whole([pair_finding(why, now) for why in faults]))
    doubts = [
        f"{name}: {one.doubt}" for name, one in zip(names, exchange, strict=True) if one.doubt
    ]
    if doubts:
        return CommandResult(judgement=undecided("; ".join(doubts)))
    return CommandResult(
        judgement=whole([]),
        measured={
            "pair_fabric_mb_per_s": min(one.mb_per_s or 0.0 for one in exchange),
            "pair_fabric_us": max(one.us or 0.0 for one in exchange),
        },
    )


def _exchange(fabric: Fabric, peer: Peer) -> Exchange:
    exchange = Exchange(doubt="no run completed")
    for run in RUNS:
        peer.channel.allow(_RUN)
        port = int(peer.channel.receive().get("port", 0))
        try:
            exchange = run_client(fabric.client(run, port, peer.host))
        except NotStarted as error:
            exchange = Exchange(doubt=str(error))
        except BackendError as error:
            exchange = Exchange(fault=f"{error}: messages were not delivered")
        continues = not (exchange.fault or exchange.doubt)
        peer.channel.send({"continues": continues})
        server_output = str(peer.channel.receive().get("output", ""))
        if exchange.doubt and server_output:
            exchange = Exchange(doubt=f"{exchange.doubt}; output of the peer: {server_output}")
        if not continues:
            break
    return exchange
