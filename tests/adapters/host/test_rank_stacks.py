"""Looks at real processes: which one is a rank, its state and its Python stack."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from holdfast.adapters.host.rank_stacks import NodeRanks, command_line, environment, take_snapshots
from holdfast.decisions.hang_verdict import VerdictKind, verdict
from holdfast.kit.masking import MASK

RANK = """
import os, time
def never_returns():
    os.write(1, b"there\\n")
    time.sleep(600)
never_returns()
"""
DEADLINE_S = 60

needs_py_spy = pytest.mark.skipif(
    shutil.which("py-spy", path=os.path.dirname(sys.executable)) is None or os.geteuid() != 0,
    reason="py-spy is not installed, or may not read other processes",
)


@pytest.fixture(params=["TORCHELASTIC_RUN_ID=x", "OMP_NUM_THREADS=1"])
def node(request):
    """A node process: a shell, below which two ranks run that share their environment with it."""
    script = (
        f"RANK=4 {request.param} API_TOKEN=hunter2 {sys.executable} -c '{RANK}' --token s3 &"
        f"RANK=5 {request.param} {sys.executable} -c '{RANK}' & wait"
    )
    shell = subprocess.Popen(
        ["bash", "-c", script], stdout=subprocess.PIPE, text=True, process_group=0
    )
    try:
        assert [shell.stdout.readline() for _ in range(2)] == ["there\n"] * 2
        yield NodeRanks(node_rank=2, node="node-2", root=shell.pid, local_world_size=2)
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
        shell.stdout.close()


@needs_py_spy
def test_the_stack_of_each_rank_is_read(node) -> None:
    end = time.monotonic() + DEADLINE_S
    while not (looks := take_snapshots([node]))[0].wait_channel:  # it does not sleep yet
        assert time.monotonic() < end, looks

    assert [one.rank for one in looks] == [4, 5]
    assert [one.node for one in looks] == ["node-2"] * 2
    assert [one.state for one in looks] == ["S"] * 2
    assert [one.frames[0].function for one in looks] == ["never_returns"] * 2


def test_a_stopped_rank_is_found_without_its_stack(node) -> None:
    pid = take_snapshots([node])[1].pid
    os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + DEADLINE_S
    while (found := verdict(take_snapshots([node]))).kind is not VerdictKind.STOPPED:
        assert time.monotonic() < end, found

    assert found.ranks == (5,)


def test_a_rank_without_a_process_is_dead(node) -> None:
    os.kill(take_snapshots([node])[0].pid, signal.SIGKILL)
    end = time.monotonic() + DEADLINE_S
    while (found := verdict(take_snapshots([node]))).kind is not VerdictKind.DEAD_PEER:
        assert time.monotonic() < end, found

    assert found.ranks == (4,)
    gone = NodeRanks(node_rank=0, node="node-0", root=None)
    assert [one.pid for one in take_snapshots([gone])] == [None]


def test_secrets_of_a_rank_are_masked(node) -> None:
    pid = take_snapshots([node])[0].pid

    assert environment(pid)["API_TOKEN"] == MASK
    assert environment(pid)["RANK"] == "4"
    assert command_line(pid)[-2:] == ("--token", MASK)
    assert "hunter2" not in str(environment(pid))
