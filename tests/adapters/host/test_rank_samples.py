"""Samples of real ranks: which rank of a DDP job the others wait for."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.adapters.host.rank_samples import sample_ranks
from holdfast.adapters.host.rank_stacks import NodeRanks
from holdfast.decisions.stragglers import WINDOWS, Window, straggler, window_of
from tests.engines.ports import free_port

SCRIPT = Path(__file__).parents[2] / "local" / "frameworks" / "torch_slow.py"
RANKS = 4

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)
needs_py_spy = pytest.mark.skipif(
    not Path(sys.executable).with_name("py-spy").exists() or os.geteuid() != 0,
    reason="py-spy is not installed, or may not read other processes",
)


@contextmanager
def ddp(**environment: str) -> Iterator[list[NodeRanks]]:
    """Run a DDP job below this process, and yield its node once all ranks train."""
    port = str(free_port())
    ranks = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT)], stdout=subprocess.PIPE, text=True,
            env={
                **os.environ, **environment, "RANK": str(rank), "WORLD_SIZE": str(RANKS),
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1",
            },
        )
        for rank in range(RANKS)
    ]  # fmt: skip
    try:
        for rank in ranks:
            assert rank.stdout is not None
            assert rank.stdout.readline() == "training\n"
        yield [NodeRanks(node_rank=0, node="node-0", root=os.getpid(), local_world_size=RANKS)]
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


@pytest.mark.frameworks
@needs_torch
@needs_py_spy
def test_the_rank_of_a_ddp_job_that_sleeps_is_named(tmp_path: Path) -> None:
    windows: list[Window] = []
    found = None
    with ddp(SLOW_RANK="2", SLOW_FACTOR="5") as nodes:
        for _ in range(WINDOWS):  # a busy machine needs more of them
            sampled = sample_ranks(nodes, tmp_path / "samples", seconds=3)
            if (window := window_of(sampled.ranks)) is not None:
                windows.append(window)
            if (found := straggler(windows, 1.15)) is not None:
                break

    assert found is not None, windows
    assert (found.rank, found.node) == (2, "node-0")
    assert found.wait < found.others_wait
    assert [*(tmp_path / "samples").iterdir()] == []


@needs_py_spy
def test_why_there_are_no_samples_is_reported(tmp_path: Path) -> None:
    alone = NodeRanks(node_rank=0, node="node-0", root=os.getpid())

    assert sample_ranks([alone], tmp_path).note == (
        "no samples: fewer than two ranks run on this machine"
    )
