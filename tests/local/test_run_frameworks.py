"""Training frameworks on ``holdfast run``, two nodes, each started as its own documentation does.

Models are tiny and random, and nothing is downloaded. A test that starts four processes takes a
quarter of a minute on two free cores, most of it imports.
"""

import importlib.util
import os
import re
import sys
from pathlib import Path

import pytest
from effort import variants

SCRIPTS = Path(__file__).parent / "frameworks"
BIN = Path(sys.executable).parent
DEADLINE_S = 500
"""For a machine that is busy with other tests."""

pytestmark = pytest.mark.frameworks


@pytest.fixture
def trained(run, tmp_path):
    """Runs a command on two nodes: the ranks that have trained, of how many."""
    run.environment |= {
        "CUDA_VISIBLE_DEVICES": "",
        "DS_ACCELERATOR": "cpu",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PATH": f"{BIN}:{os.environ['PATH']}",
    }

    def train(*arguments: str) -> list[tuple[int, int]]:
        ended = run.run(
            "--nodes", "2", "--logs", "all", "--max-app-retries", "1", *arguments,
            timeout=DEADLINE_S, cwd=tmp_path,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stdout + ended.stderr
        # A launcher that fails while it exits, on a busy machine, costs an attempt: counted once.
        found = {*re.findall(r"trained rank (\d+) of (\d+)", ended.stdout)}
        return sorted((int(rank), int(world)) for rank, world in found)

    return train


def needs(module: str) -> pytest.MarkDecorator:
    is_missing = importlib.util.find_spec(module) is None
    return pytest.mark.skipif(is_missing, reason=f"{module} is not installed: make frameworks")


def all_of(world: int) -> list[tuple[int, int]]:
    return [(rank, world) for rank in range(world)]


@needs("torch")
def test_a_job_under_torchrun_resumes_after_one_of_its_ranks_was_killed(run, trained):
    run.environment["KILLED_IN"] = "1"

    assert trained("--", "torchrun", str(SCRIPTS / "torch_ddp.py")) == all_of(2)

    (over, _) = run.record().attempts
    assert over.failure.evidence.endswith("(rank 1: Signal 9 (SIGKILL))")
    assert "resumed at 3" in run.dir.log(2, 0).read_text()


@needs("lightning")
@pytest.mark.parametrize("devices", variants([2, 1]))
def test_lightning_trains_on_all_nodes_under_plain_python(trained, devices):
    script = str(SCRIPTS / "lightning_fit.py")

    found = trained("--nproc-per-node", str(devices), "--", "python", script, str(devices))

    assert found == all_of(2 * devices)


@needs("transformers")
def test_the_trainer_of_hugging_face_trains_on_all_nodes_under_torchrun(trained):
    assert trained("--", "torchrun", str(SCRIPTS / "hf_trainer.py")) == all_of(2)


@needs("accelerate")
def test_accelerate_trains_on_all_nodes_under_its_own_launcher(trained):
    launch = (
        "accelerate launch --multi_gpu --num_machines 2 --num_processes 2 "
        "--machine_rank $NODE_RANK --main_process_ip $MASTER_ADDR "
        f"--main_process_port $MASTER_PORT {SCRIPTS}/accelerate_loop.py"
    )

    assert trained("--", "bash", "-c", launch) == all_of(2)


@needs("deepspeed")
def test_deepspeed_trains_on_all_nodes_under_its_own_launcher(trained, tmp_path):
    hosts = tmp_path / "hosts"
    hosts.write_text("node-0 slots=1\nnode-1 slots=1\n", encoding="utf-8")
    launch = (
        f"deepspeed --hostfile {hosts} --no_ssh --node_rank $NODE_RANK "
        f"--master_addr $MASTER_ADDR --master_port $MASTER_PORT {SCRIPTS}/deepspeed_engine.py"
    )

    assert trained("--", "bash", "-c", launch) == all_of(2)
