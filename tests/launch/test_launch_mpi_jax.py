"""Variables of ranks that JAX and programs of MPI read, with JAX and Open MPI themselves."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from installed import skip_without
from launch.launched import TORCH_LIMIT_S, launch

FRAMEWORKS = Path(__file__).parent.parent / "local" / "frameworks"
ON_CPU = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}

pytestmark = pytest.mark.frameworks


def test_processes_of_jax_meet_again_after_a_restart() -> None:
    skip_without("jax")
    script = FRAMEWORKS / "jax_sum.py"
    done = launch("--nproc-per-node", 2, script, limit_s=TORCH_LIMIT_S, **ON_CPU)

    assert done.returncode == 0, done.stderr
    assert done.stderr.count("RanksRestarted: in-place") == 1
    lines = re.findall(r"^rank (\d) is (\d) of 2: (.+)$", done.stdout, re.MULTILINE)
    assert sorted(lines[-2:]) == [("0", "0", "[1, 2]"), ("1", "1", "[1, 2]")]
    assert len(lines) in (3, 4)  # rank 0 may be stopped before it prints


def test_ranks_have_the_variables_of_mpirun_and_stay_worlds_of_their_own(tmp_path: Path) -> None:
    skip_without("mpi4py")
    mpirun = Path(sys.executable).with_name("mpirun")
    if not mpirun.exists():
        pytest.skip("Open MPI is not installed: make frameworks")
    script = str(FRAMEWORKS / "mpi_names.py")
    options = ("--allow-run-as-root", "--oversubscribe", "-n", "2")
    command = (mpirun, *options, sys.executable, script, tmp_path, "mpirun")
    subprocess.run(command, check=True, timeout=TORCH_LIMIT_S)
    done = launch("--nproc-per-node", 2, script, tmp_path, "launch", limit_s=TORCH_LIMIT_S)
    assert done.returncode == 0, done.stderr

    for rank in range(2):
        theirs = json.loads((tmp_path / f"mpirun-{rank}").read_text(encoding="utf-8"))
        ours = json.loads((tmp_path / f"launch-{rank}").read_text(encoding="utf-8"))
        assert theirs["names"].items() <= ours["names"].items()
        assert len(theirs["names"]) == 5
        assert {name: ours["names"][name] for name in ("PMI_RANK", "PMI_SIZE")} == {
            "PMI_RANK": str(rank),
            "PMI_SIZE": "2",
        }
        assert (theirs["size"], theirs["sum"]) == (2, 2)
        assert (ours["size"], ours["sum"]) == (1, 1)
