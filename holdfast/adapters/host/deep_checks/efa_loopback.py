"""Loopback test of every EFA device: latency, bandwidth and data integrity."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from holdfast.adapters.host.commands import NotStarted, background_command
from holdfast.adapters.host.deep_checks.contract import (
    CommandResult,
    Series,
    Skip,
    Target,
    missing_tool,
)
from holdfast.adapters.host.network import efa_devices
from holdfast.adapters.host.pingpong import RUNS, Fabric, free_port, run_client
from holdfast.detectors.judgement import LONGEST_MESSAGE, Judgement
from holdfast.detectors.pingpong import Exchange, is_of_host
from holdfast.detectors.thresholds import Thresholds, shortfalls
from holdfast.model.errors import BackendError
from holdfast.model.health import Finding, Remedy, Severity
from holdfast.model.names import Condition, Reason

FAMILY: Final = "efa-loopback"

_TAKES: Final = timedelta(seconds=3)
"""Duration per device."""

_HERE: Final = "127.0.0.1"


def efa_loopback(target: Target) -> Series | Skip:
    """Check that every EFA device passes a loopback test, fast enough."""
    devices = efa_devices(target.machine.root)
    if not devices:
        return Skip(why="no EFA device found")
    program = target.machine.find("fi_pingpong")
    if program is None:
        return missing_tool("fi_pingpong")
    fabrics = {
        device: Fabric(program=program, provider="efa", domain=f"{device}-rdm")
        for device in devices
    }
    return Series(
        argv=fabrics[devices[0]].client(RUNS[-1], 0, _HERE),
        takes=_TAKES * len(devices),
        make=partial(_make, fabrics, target.thresholds),
    )


def _make(fabrics: dict[str, Fabric], thresholds: Thresholds, now: datetime) -> CommandResult:
    found = {device: _exchange(fabric) for device, fabric in fabrics.items()}
    good = [one for one in found.values() if one.mb_per_s is not None]
    findings = [
        _finding(device, why, now)
        for device, one in found.items()
        if (why := one.fault or "; ".join(shortfalls(_measured([one]), thresholds)))
    ]
    doubts = [f"{device}: {one.doubt}" for device, one in found.items() if one.doubt]
    # If none responds, the cause is a security group or the driver, not a single device.
    if good:
        silent = [
            (device, one) for device, one in found.items() if one.doubt and not one.is_of_host
        ]
        findings += [_finding(device, one.doubt, now) for device, one in silent]
        undecided = "; ".join(doubts)
    else:
        undecided = _silence(doubts)
    return CommandResult(
        judgement=Judgement(findings=tuple(findings), undecided=undecided[:LONGEST_MESSAGE]),
        measured=_measured(good),
        facts={device: _summary(one) for device, one in found.items()},
    )


def _exchange(fabric: Fabric) -> Exchange:
    """Return the exchange of the last run, unless an earlier run failed."""
    exchange = Exchange(doubt="no run completed")
    for run in RUNS:
        try:
            exchange = _run(fabric, run)
        except (NotStarted, OSError) as error:
            exchange = Exchange(doubt=f"not tested: {error}", is_of_host=True)
        if exchange.fault or exchange.doubt:
            break
    return exchange


def _run(fabric: Fabric, run: Sequence[str]) -> Exchange:
    """Run a server and its client.

    Raises:
        NotStarted: one of them cannot be started.
        OSError: the host lacks a port or a descriptor for them.

    """
    port = free_port()
    with background_command(fabric.server(run, port)) as server:
        try:
            client = fabric.client(run, port, _HERE)
            exchange = run_client(client, is_over=lambda: server.status is not None)
        except NotStarted:
            raise
        except BackendError as error:
            exchange = Exchange(doubt=f"{error}: messages were not delivered")
        if not exchange.doubt:
            return exchange
        doubt, output, status = exchange.doubt, server.output(), server.status
        if output:
            doubt = f"{doubt}; output of its server: {output[-200:]}"
        has_lacked = exchange.is_of_host or (status is not None and is_of_host(status))
        return replace(exchange, doubt=doubt, is_of_host=has_lacked)


def _measured(good: list[Exchange]) -> dict[str, float]:
    rates = [one.mb_per_s for one in good if one.mb_per_s is not None]
    times = [one.us for one in good if one.us is not None]
    if not rates or not times:
        return {}
    return {"efa_loopback_mb_per_s": min(rates), "efa_loopback_us": max(times)}


def _summary(one: Exchange) -> str:
    if one.mb_per_s is None or one.us is None:
        return one.fault or one.doubt
    return f"{one.mb_per_s:g} MB/s, {one.us:g} us"


def _silence(doubts: list[str]) -> str:
    if not doubts:
        return ""
    advice = (
        "the loopback test failed on all EFA devices; check that the security group allows all"
        " inbound and outbound traffic to itself:"
    )
    return f"{advice} {doubts[0]}"


def _finding(device: str, why: str, now: datetime) -> Finding:
    return Finding(
        family=FAMILY,
        condition=Condition.NETWORK,
        reason=Reason.EFA_LOOPBACK,
        severity=Severity.FATAL,
        remedy=Remedy.REBOOT,
        message=f"{device}: {why}"[:LONGEST_MESSAGE],
        observed_at=now,
        device=device,
    )
