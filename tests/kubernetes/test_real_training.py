"""A real training, of NumPy, on two pods of a real PyTorchJob: it loses a node and goes on."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from controlled import installed  # noqa: F401 - a fixture
from gangs import SETTINGS
from machines import REPLACE_XID, Fleet, a_fleet
from real_cluster import Cluster, until
from real_ranks import ROOT, real_ranks
from training import Training

from tests.engines.ports import free_port

pytest.importorskip("numpy")
pytestmark = pytest.mark.usefixtures("training_operator")
STEPS = 120


@pytest.fixture
def fleet(installed, cluster: Cluster, tmp_path: Path) -> Iterator[Fleet]:  # noqa: F811
    with a_fleet(cluster, tmp_path) as fleet:
        yield fleet


def trainer(checkpoints: Path, *options: str) -> list[str]:
    chosen = ["--steps", str(STEPS), "--batch", "64", "--hidden", "16", "--checkpoint-every", "5"]
    program = [sys.executable, "-m", "holdfast.apps.demo.train_numpy"]
    return [*program, *chosen, "--checkpoint-dir", str(checkpoints), *options]


def undisturbed(checkpoints: Path) -> Any:
    """What becomes of the same training if nothing happens to it."""
    port = str(free_port())
    ranks = [
        subprocess.Popen(
            trainer(checkpoints),
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "RANK": rank,
                "WORLD_SIZE": "2",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
            },
            stdout=subprocess.DEVNULL,
        )
        for rank in ("0", "1")
    ]
    assert [rank.wait(120) for rank in ranks] == [0, 0]
    return final(checkpoints)


def final(checkpoints: Path) -> Any:
    return json.loads((checkpoints / "final.json").read_text("utf-8"))


def test_a_real_training_goes_on_from_its_checkpoint_on_other_nodes_as_if_nothing_had_happened(
    fleet: Fleet, tmp_path: Path
) -> None:
    checkpoints = tmp_path / "checkpoints"
    fleet.start("a", "b", "c")
    fleet.control(settings=SETTINGS)
    fleet.until_schedulable("a", "b", "c")
    job = Training(fleet.cluster, fleet.api)
    job.container = {
        "command": trainer(checkpoints, "--step-time", "0.1"),
        "ports": [{"name": "pytorchjob-port", "containerPort": free_port()}],
    }

    with real_ranks(fleet, tmp_path) as ranks:
        job.submit()
        job.until_running(1)
        until(lambda: list(checkpoints.glob("step-*.ckpt")))
        bad = job.nodes[1]
        fleet.machines[bad].log(REPLACE_XID)
        job.until_running(2)
        assert bad not in job.nodes
        until(lambda: job.phase == "succeeded")

    assert "Succeeded" in job.conditions
    assert (job.record["hardware_retries"], job.record["app_retries"]) == (1, 0)
    assert len(ranks.started) == 4
    words = [ranks.words(number) for number in range(4)]
    assert sum("started at step 0" in one for one in words) == 1
    assert sum("attempt 2: resumed at step" in one for one in words) == 1
    assert final(checkpoints) == undisturbed(tmp_path / "undisturbed")
