"""Real frameworks on ``holdfast run``: the newest checkpoint is cut off, and the rank is killed."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent / "frameworks" / "resuming"
DEADLINE_S = 500
"""For a machine that is busy with other tests."""

pytestmark = pytest.mark.frameworks

JOBS = {
    "torch_save": "torch",
    "dcp": "torch",
    "lightning_file": "lightning",
    "hf_trainer": "transformers",
    "accelerate_state": "accelerate",
    "deepspeed_latest": "deepspeed",
}


@pytest.mark.parametrize("script", JOBS)
def test_the_job_resumes_from_the_checkpoint_before_a_truncated_one(run, tmp_path, script) -> None:
    module = JOBS[script]
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed: make frameworks")
    run.environment |= {
        "CUDA_VISIBLE_DEVICES": "",
        "DS_ACCELERATOR": "cpu",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TORCH_EXTENSIONS_DIR": f"{sys.prefix}/torch_extensions",
    }
    folder = tmp_path / "ckpt"
    folder.mkdir()

    ended = run.run(
        *("--max-app-retries", "1", "--checkpoint-dir", str(folder)),
        *("--", "python", str(SCRIPTS / f"{script}.py")),
        timeout=DEADLINE_S,
        cwd=tmp_path,
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "resumed at 0" in run.dir.log(1, 0).read_text()
    assert "resumed at 4" in run.dir.log(2, 0).read_text()
    broken, *_, chosen = [line for line in ended.stdout.splitlines() if "before attempt 2" in line]
    assert "; moved to " in broken
    assert "is complete (sizes only" in chosen
