"""``holdfast launch -- torchrun ...``: torchrun starts the ranks, and restarts with its node."""

import os
import signal
import sys
from pathlib import Path

import pytest
from launch.launched import TORCH_LIMIT_S, launch, numbers_in, start, wait_for

from tests.engines.ports import free_port

TORCHRUN = Path(sys.executable).with_name("torchrun")

TRAIN = """
import os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
import torch.distributed as dist
dist.init_process_group("gloo")
number, rank = os.environ["HOLDFAST_LAUNCH_ROUND"], dist.get_rank()
world = dist.get_world_size()
assert os.environ["RANK"] == str(rank)
assert os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
(folder / f".{number}.{rank}").write_text(f"{os.getpid()}\\n", encoding="utf-8")
os.rename(folder / f".{number}.{rank}", folder / f"rank.{number}.{rank}.of.{world}")
while not (folder / "finish").exists():
    time.sleep(0.05)
"""


@pytest.mark.torch
def test_torchrun_of_two_nodes_restarts_with_all_its_ranks(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAIN, encoding="utf-8")
    meeting = ("--nnodes", 2, "--rdzv-endpoint", f"127.0.0.1:{free_port()}")
    own = ("--shutdown-timeout", "2s", "--", TORCHRUN, "--nproc-per-node", 2, script, tmp_path)
    variables = {
        "HOLDFAST_LAUNCH_KEY": "0123456789abcdef",
        "PET_RDZV_BACKEND": "c10d",  # as an operator sets them
        "PET_RDZV_ENDPOINT": "nowhere:1",
    }
    launchers = [start(*meeting, "--node-rank", rank, *own, **variables) for rank in (0, 1)]
    for number in (1, 2):
        wait_for(
            lambda number=number: len(numbers_in(tmp_path, f"rank.{number}.*.of.4")) == 4,
            f"round {number}",
            limit_s=TORCH_LIMIT_S,
        )
        if number == 1:
            os.kill(numbers_in(tmp_path, "rank.1.3.*")[0], signal.SIGKILL)
    (tmp_path / "finish").touch()
    printed = [one.communicate(timeout=TORCH_LIMIT_S)[1] for one in launchers]

    assert [one.returncode for one in launchers] == [0, 0], printed
    assert "RanksRestarted: in-place" in printed[0]


def test_a_launcher_gets_no_variable_of_a_rank(tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    code = f"import os; open({str(shown)!r}, 'w').write(' '.join(os.environ))"
    done = launch("--nproc-per-node", 4, "--", sys.executable, "-c", code)

    assert done.returncode == 0, done.stderr
    names = set(shown.read_text().split())
    assert not names & {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "NODE_RANK"}
    assert names >= {"PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"}


@pytest.mark.parametrize(
    "option", [("--warm",), ("-m",), ("--hang-timeout", "1m"), ("--straggler-factor", "1.2")]
)
def test_what_needs_the_ranks_is_refused_with_a_launcher(option: tuple[str, ...]) -> None:
    done = launch(*option, "--", "torchrun", "train.py")

    assert done.returncode == 2
    assert "and -- exclude each other" in done.stderr
