"""``holdfast slurm stacks``: the rank for which the others wait, on a real cluster."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines.slurm_cluster import SlurmCluster

pytestmark = pytest.mark.skipif(
    not Path(sys.executable).with_name("py-spy").exists() or os.geteuid() != 0,
    reason="py-spy is not installed, or may not read other processes",
)

WAITS = "import time\ndef all_reduce():\n    time.sleep(600)\n"
TRAINS = """
import os, pathlib, sys, time
sys.path.insert(0, sys.argv[1])
import distributed_c10d

def loads_a_batch():
    time.sleep(600)

pathlib.Path(sys.argv[2], "ready-" + os.environ["RANK"]).touch()
if os.environ["RANK"] == "1":
    loads_a_batch()
distributed_c10d.all_reduce()
"""


def asked(slurm: SlurmCluster, job: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{slurm.environment.get('PATH', os.environ['PATH'])}"
    return subprocess.run(
        [sys.executable, "-m", "holdfast", "slurm", "stacks", job],
        env={**os.environ, **slurm.environment, "PATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_rank_for_which_the_others_wait_is_named(slurm: SlurmCluster, tmp_path: Path) -> None:
    library = tmp_path / "torch/distributed"
    library.mkdir(parents=True)
    (library / "distributed_c10d.py").write_text(WAITS, encoding="utf-8")
    program = tmp_path / "train.py"
    program.write_text(TRAINS, encoding="utf-8")
    rank = f"RANK=$SLURM_PROCID exec {sys.executable} {program} {library} {tmp_path}"
    job = slurm.submit("-N2", script=f"srun sh -c '{rank}'")
    slurm.until(lambda: len([*tmp_path.glob("ready-*")]) == 2)

    found = asked(slurm, job)

    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith(f"job {job}: rank 1 on node")
    assert "never entered all_reduce: it is in loads_a_batch (train.py:" in found.stdout
    assert "### 1 rank: 0" in found.stdout
    assert slurm.jobs()[job] == "RUNNING"

    unknown = asked(slurm, "999")
    assert unknown.returncode != 0
    assert "job 999 is not running; see: squeue --states=running" in unknown.stderr
