"""Checks of Amazon EC2 devices: Neuron accelerators and EFA network interfaces."""

from datetime import datetime, timedelta
from functools import partial
from typing import Final

from holdfast.adapters.host.commands import Result
from holdfast.adapters.host.deep_checks.contract import (
    CheckCommand,
    CommandResult,
    Skip,
    Target,
    missing_tool,
)
from holdfast.adapters.host.network import efa_devices
from holdfast.adapters.host.small_files import names_in
from holdfast.detectors.judgement import undecided
from holdfast.detectors.nccom import judge_nccom, nccom_bandwidth
from holdfast.detectors.network_tools import judge_fi_info
from holdfast.detectors.neuron_state import judge_ls

_SHORT: Final = timedelta(seconds=30)
_COLLECTIVE: Final = timedelta(minutes=5)
LARGE: Final = ("-b", "1GB", "-e", "1GB", "-d", "fp32", "-c")
"""Messages of 1 GiB with verified sums, which require this data type."""


def neuron(target: Target) -> CheckCommand | Skip:
    """Check that all Neuron devices of the instance type are present with all their cores."""
    expected = target.equipment.neuron_devices
    if not expected and not names_in(target.machine.root / "sys/devices/virtual/neuron_device"):
        return Skip(why="no Neuron device expected or found")
    program = target.machine.find("neuron-ls")
    if program is None:
        return missing_tool("neuron-ls")
    return CheckCommand(
        argv=(program, "-j"),
        takes=timedelta(seconds=2),
        timeout=_SHORT,
        judge=partial(_judge_neuron, expected),
    )


def collectives(target: Target) -> CheckCommand | Skip:
    """Check that Neuron's all-reduce between the cores of the node is correct and fast enough."""
    cores = target.equipment.neuron_cores
    if cores is None:
        return Skip(why="no Neuron device with a known number of cores expected")
    program = target.machine.find("nccom-test")
    if program is None:
        return missing_tool("nccom-test")
    return CheckCommand(
        argv=(program, "-r", str(cores), *LARGE, "allr"),
        takes=timedelta(seconds=30),
        timeout=_COLLECTIVE,
        judge=_judge_collectives,
    )


def efa(target: Target) -> CheckCommand | Skip:
    """Check that all EFA devices of the node are present and usable by libfabric."""
    expected = target.equipment.efa
    if not expected and not efa_devices(target.machine.root):
        return Skip(why="no EFA device expected or found")
    program = target.machine.find("fi_info")
    if program is None:
        return missing_tool("fi_info")
    return CheckCommand(
        argv=(program, "-p", "efa", "-t", "FI_EP_RDM"),
        takes=timedelta(seconds=2),
        timeout=_SHORT,
        judge=partial(_judge_efa, expected),
    )


def _judge_neuron(expected: int | None, result: Result, now: datetime) -> CommandResult:
    text = result.stdout if result.stdout.strip() else result.stderr
    return CommandResult(judgement=judge_ls(text, now, expected=expected))


def _judge_collectives(result: Result, now: datetime) -> CommandResult:  # noqa: ARG001 - no findings
    return nccom_result(result, "nccom_gb_per_s")


def nccom_result(result: Result, measure: str) -> CommandResult:
    """Return the result of ``nccom-test``; ``measure`` is the name for its bandwidth."""
    text = result.stdout + result.stderr
    judgement = judge_nccom(text)
    if result.status and not judgement.undecided:
        judgement = undecided(f"nccom-test exited with {result.status}")
    bandwidth = nccom_bandwidth(text)
    return CommandResult(
        judgement=judgement, measured={} if bandwidth is None else {measure: bandwidth}
    )


def _judge_efa(expected: int | None, result: Result, now: datetime) -> CommandResult:
    text = result.stdout if result.stdout.strip() else result.stderr
    return CommandResult(judgement=judge_fi_info(text, now, expected=expected))
