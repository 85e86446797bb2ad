"""Collectives over two nodes, started with srun or mpirun and evaluated by their output."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from holdfast.adapters.host.commands import Result, never
from holdfast.adapters.host.deep_checks.aws import LARGE, nccom_result
from holdfast.adapters.host.deep_checks.contract import CheckCommand, CommandResult, Skip
from holdfast.detectors.instance_types import Equipment
from holdfast.detectors.judgement import undecided
from holdfast.detectors.load_tests import hosts_of, judge_nccl, largest_bandwidth

NCCL: Final = "nccl"
NCCOM: Final = "nccom"

_HUNG: Final = "the collective hung, as over a bad link"
_ROOT_PORT: Final = 20260
"""Port of the rendezvous of ``nccom-test``."""

Launcher = Callable[[tuple[str, ...], int], tuple[str, ...]]
"""Returns the launcher's command line for nodes and a number of tasks per node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestLaunch:
    """Launcher and limits of a test."""

    launcher: Launcher
    timeout: timedelta
    is_over: Callable[[], bool] = never
    """Polled while the test runs; True cancels it."""


def nccl(equipment: Equipment, nodes: tuple[str, ...], launch: TestLaunch) -> CheckCommand | Skip:
    """Plan NCCL's all-reduce between all GPUs of the nodes, one task per GPU."""
    if not equipment.gpus:
        return Skip(why="number of GPUs of a node unknown; set it under [expected]")
    test = ("all_reduce_perf", "-b", "1G", "-e", "2G", "-f", "2", "-g", "1", "-c", "1")
    return _plan((*launch.launcher(nodes, equipment.gpus), *test), launch, _judge_nccl)


def nccom(equipment: Equipment, nodes: tuple[str, ...], launch: TestLaunch) -> CheckCommand | Skip:
    """Plan Neuron's all-reduce between all cores of the nodes, started on the first node."""
    cores = equipment.neuron_cores
    if cores is None:
        return Skip(why="number of Neuron cores of a node unknown; set its instance_type")
    test = (
        "/usr/bin/env", f"NEURON_RT_ROOT_COMM_ID={nodes[0]}:{_ROOT_PORT}",
        "nccom-test", "-r", str(cores * len(nodes)), "-N", str(len(nodes)), *LARGE, "allr",
        "--hosts", *nodes,
    )  # fmt: skip
    return _plan((*launch.launcher(nodes[:1], 1), *test), launch, _judge_nccom)


LAUNCHED: Final = {NCCL: nccl, NCCOM: nccom}


def _plan(
    argv: tuple[str, ...], launch: TestLaunch, judge: Callable[[Result, datetime], CommandResult]
) -> CheckCommand:
    return CheckCommand(
        argv=argv,
        takes=timedelta(minutes=1),
        timeout=launch.timeout,
        judge=judge,
        if_hung=_HUNG,
        is_over=launch.is_over,
    )


def _judge_nccl(result: Result, now: datetime) -> CommandResult:
    text = result.stdout + result.stderr
    judgement = judge_nccl(text, now)
    hosts = hosts_of(text)
    if not judgement.findings and not judgement.undecided:
        if result.status:
            judgement = undecided(f"all_reduce_perf exited with {result.status}")
        elif len(hosts) < 2:
            judgement = undecided(
                "all_reduce_perf ran on one node only: it must be built with MPI=1, and srun needs "
                "--mpi for that MPI"
            )
    bandwidth = largest_bandwidth(text)
    is_measured = bandwidth is not None and not judgement.undecided
    return CommandResult(
        judgement=judgement,
        measured={"pair_nccl_gb_per_s": bandwidth} if bandwidth and is_measured else {},
    )


def _judge_nccom(result: Result, now: datetime) -> CommandResult:  # noqa: ARG001 - no findings
    return nccom_result(result, "pair_nccom_gb_per_s")
