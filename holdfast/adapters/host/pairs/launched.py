"""Collectives over two nodes: programs that srun or mpirun start, judged by their output."""

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

_HUNG: Final = "it does not end, as collectives do over a bad link"
_ROOT_PORT: Final = 20260
"""Where the ranks of ``nccom-test`` meet."""

Launcher = Callable[[tuple[str, ...], int], tuple[str, ...]]
"""Given nodes and how many tasks each, the beginning of a command line that starts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestLaunch:
    """How and for how long."""

    launcher: Launcher
    timeout: timedelta
    is_over: Callable[[], bool] = never
    """Asked while it runs: whether it is to be broken off."""


def nccl(equipment: Equipment, nodes: tuple[str, ...], launch: TestLaunch) -> CheckCommand | Skip:
    """NCCL's all-reduce between all GPUs of the nodes, one task for each."""
    if not equipment.gpus:
        return Skip(why="how many GPUs a node has is not known: say it under [expected]")
    test = ("all_reduce_perf", "-b", "1G", "-e", "2G", "-f", "2", "-g", "1", "-c", "1")
    return _plan((*launch.launcher(nodes, equipment.gpus), *test), launch, _judge_nccl)


def nccom(equipment: Equipment, nodes: tuple[str, ...], launch: TestLaunch) -> CheckCommand | Skip:
    """Neuron's all-reduce between all cores of the nodes, begun on the first of them."""
    cores = equipment.neuron_cores
    if cores is None:
        return Skip(why="how many Neuron cores a node has is not known: say its instance_type")
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
            judgement = undecided(f"all_reduce_perf ended with {result.status}")
        elif len(hosts) < 2:
            judgement = undecided(
                "it ran on one node only: all_reduce_perf must be built with MPI=1, and srun needs "
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
