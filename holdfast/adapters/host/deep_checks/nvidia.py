"""Checks of NVIDIA GPUs: number, NVLinks, DCGM diagnosis and collective bandwidth."""

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
from holdfast.adapters.host.small_files import names_in
from holdfast.detectors.gpu_dcgm import diag_facts, judge_diag
from holdfast.detectors.gpu_state import judge_xml
from holdfast.detectors.judgement import undecided
from holdfast.detectors.load_tests import judge_nccl, largest_bandwidth
from holdfast.detectors.nvlink_status import judge_nvlink
from holdfast.model.node_checks import Level

DIAGNOSIS: Final = {
    Level.QUICK: (2, timedelta(minutes=3), timedelta(minutes=10)),
    Level.STANDARD: (3, timedelta(minutes=30), timedelta(minutes=60)),
    Level.LONG: (4, timedelta(minutes=90), timedelta(minutes=150)),
}
"""Level of ``dcgmi diag``, its duration and its timeout. ParallelCluster gives level 2 ten
minutes, HyperPod level 4 45 to 90 minutes; level 3 takes 12 to 30."""

_SHORT: Final = timedelta(seconds=30)
_COLLECTIVE: Final = timedelta(minutes=5)
_NO_GPU: Final = Skip(why="no NVIDIA GPU expected or found")


def gpus(target: Target) -> CheckCommand | Skip:
    """Check that all GPUs of the instance type are present and report no faults."""
    program = target.machine.find("nvidia-smi")
    if program is None:
        return _without_tool(target, "nvidia-smi")
    return CheckCommand(
        argv=(program, "-q", "-x"),
        takes=timedelta(seconds=2),
        timeout=_SHORT,
        judge=partial(_judge_gpus, target.equipment.gpus),
    )


def nvlinks(target: Target) -> CheckCommand | Skip:
    """Check that all NVLinks of every GPU are active."""
    if target.equipment.gpus is not None and target.equipment.gpus < 2:
        return Skip(why="fewer than two GPUs: no NVLinks")
    program = target.machine.find("nvidia-smi")
    if program is None:
        return _without_tool(target, "nvidia-smi")
    return CheckCommand(
        argv=(program, "nvlink", "--status"),
        takes=timedelta(seconds=2),
        timeout=_SHORT,
        judge=partial(_judge_nvlinks, target.equipment.nvlinks),
    )


def diagnosis(target: Target) -> CheckCommand | Skip:
    """Run DCGM's diagnosis, which loads the GPUs."""
    program = target.machine.find("dcgmi")
    if program is None:
        return _without_tool(target, "dcgmi")
    level, takes, timeout = DIAGNOSIS[target.level]
    return CheckCommand(
        argv=(program, "diag", "-r", str(level), "-j"),
        takes=takes,
        timeout=timeout,
        judge=partial(_judge_diagnosis, level),
    )


def collectives(target: Target) -> CheckCommand | Skip:
    """Check that NCCL's all-reduce between the GPUs of the node is correct and fast enough."""
    count = target.equipment.gpus or _present(target)
    if count < 2:
        return Skip(why="fewer than two GPUs")
    program = target.machine.find("all_reduce_perf")
    if program is None:
        return missing_tool("all_reduce_perf")
    return CheckCommand(
        argv=(program, "-b", "1G", "-e", "1G", "-g", str(count), "-c", "1"),
        takes=timedelta(seconds=30),
        timeout=_COLLECTIVE,
        judge=_judge_collectives,
    )


def _present(target: Target) -> int:
    return len(names_in(target.machine.root / "proc/driver/nvidia/gpus"))


def _without_tool(target: Target, name: str) -> Skip:
    return missing_tool(name) if target.equipment.gpus or _present(target) else _NO_GPU


def _judge_gpus(expected: int | None, result: Result, now: datetime) -> CommandResult:
    return CommandResult(judgement=judge_xml(result.stdout, now, expected=expected))


def _judge_nvlinks(expected: int | None, result: Result, now: datetime) -> CommandResult:
    if result.status:
        return CommandResult(judgement=undecided(f"nvidia-smi exited with {result.status}"))
    return CommandResult(judgement=judge_nvlink(result.stdout, now, expected=expected))


def _judge_diagnosis(level: int, result: Result, now: datetime) -> CommandResult:
    """Evaluate the document only: the exit status is 226 for a configuration remark, too."""
    text = result.stdout or result.stderr
    reported = diag_facts(text)
    facts = {
        "level": str(level),
        "version": reported.version,
        "driver": reported.driver,
        "device_ids": ", ".join(reported.device_ids),
    }
    return CommandResult(judgement=judge_diag(text, now), facts=facts)


def _judge_collectives(result: Result, now: datetime) -> CommandResult:
    text = result.stdout + result.stderr
    judgement = judge_nccl(text, now)
    if result.status and not judgement.findings and not judgement.undecided:
        judgement = undecided(f"all_reduce_perf exited with {result.status}")
    bandwidth = largest_bandwidth(text)
    return CommandResult(
        judgement=judgement,
        measured={} if bandwidth is None else {"nccl_gb_per_s": bandwidth},
    )
