"""Devices of Amazon EC2: Neuron's accelerators, and EFA's network interfaces."""

from datetime import datetime, timedelta
from functools import partial
from typing import Final

from holdfast.adapters.host.commands import Result
from holdfast.adapters.host.deep_checks.contract import Plan, Skip, Target, Verdict, missing_tool
from holdfast.adapters.host.network import is_efa
from holdfast.adapters.host.small_files import names_in
from holdfast.detectors.network_tools import judge_fi_info
from holdfast.detectors.neuron_state import judge_ls

_SHORT: Final = timedelta(seconds=30)


def neuron(target: Target) -> Plan | Skip:
    """All Neuron devices that the instance type has are there, each with all its cores."""
    expected = target.equipment.neuron_devices
    if not expected and not names_in(target.machine.root / "sys/devices/virtual/neuron_device"):
        return Skip(why="no Neuron device is expected or found here")
    program = target.machine.find("neuron-ls")
    if program is None:
        return missing_tool("neuron-ls")
    return Plan(
        argv=(program, "-j"),
        takes=timedelta(seconds=2),
        timeout=_SHORT,
        judge=partial(_judge_neuron, expected),
    )


def efa(target: Target) -> Plan | Skip:
    """All EFA devices that the node was given are there, and libfabric can use them."""
    expected = target.equipment.efa
    devices = target.machine.root / "sys/class/infiniband"
    if not expected and not any(is_efa(devices / name) for name in names_in(devices)):
        return Skip(why="no EFA device is expected or found here")
    program = target.machine.find("fi_info")
    if program is None:
        return missing_tool("fi_info")
    return Plan(
        argv=(program, "-p", "efa", "-t", "FI_EP_RDM"),
        takes=timedelta(seconds=2),
        timeout=_SHORT,
        judge=partial(_judge_efa, expected),
    )


def _judge_neuron(expected: int | None, result: Result, now: datetime) -> Verdict:
    text = result.stdout if result.stdout.strip() else result.stderr
    return Verdict(judgement=judge_ls(text, now, expected=expected))


def _judge_efa(expected: int | None, result: Result, now: datetime) -> Verdict:
    text = result.stdout if result.stdout.strip() else result.stderr
    return Verdict(judgement=judge_fi_info(text, now, expected=expected))
