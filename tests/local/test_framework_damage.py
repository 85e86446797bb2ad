"""Real frameworks on ``holdfast run``: the newest checkpoint is damaged, and its node loses power.

The first attempt loses half of a file with weights, and the second one has a bit of it flipped, of
which a safetensors file has no trace: the background verification of the save has.
"""

import importlib.util
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from effort import is_quick, variants

from holdfast.adapters.checkpoints.manifest_check import manifest_of
from tests.engines.framework_environments import environment_of

SCRIPTS = Path(__file__).parent / "frameworks" / "resuming"
SAVED = re.compile(r"saved (\d+) with (\w+) as (.*): (.*)")

pytestmark = pytest.mark.frameworks

JOBS = {
    "torch_save": "torch",
    "safetensors_file": "safetensors",
    "dcp": "torch",
    "lightning_file": "lightning",
    "hf_trainer": "transformers",
    "accelerate_state": "accelerate",
    "deepspeed_latest": "deepspeed",
    "fsdp_full": "torch",
}
"""Script to the package that it needs."""

IN_ENVIRONMENTS = {
    "orbax_manager": "orbax",
    "dcp_async": "",
    "lightning_sharded": "",
    "megatron_core": "megatron",
    "torchtitan_manager": "torchtitan",
    "composer_trainer": "composer",
    "dlrover_flash": "dlrover",
    "ray_trainer": "ray",
}
"""Script to its environment; without a name, that of the tests. The first one is always tried."""

NODES = {"dlrover_flash": "2"}
"""Script to its number of nodes, one by default."""


OF_RAY = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_DEDUP_LOGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_memory_monitor_refresh_ms": "0",
}
"""Ray writes no token into the home directory, and kills no worker for memory that others use."""


@pytest.fixture
def ray_folder() -> Iterator[str]:
    """A directory with a short path for Ray's sockets, whose paths have at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        yield folder


def scripts() -> list[str]:
    return [*variants(JOBS), *(list(IN_ENVIRONMENTS)[:1] if is_quick() else IN_ENVIRONMENTS)]


def programs_of(script: str) -> Path:
    """The directory of the Python that runs a script."""
    module = JOBS.get(script, "torch")
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed: make frameworks")
    name = IN_ENVIRONMENTS.get(script)
    return environment_of(name) / "bin" if name else Path(sys.executable).parent


def cut_off(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip(path: Path) -> None:
    """Flip a bit among the weights, as a fault of the storage does: the file gets no other time."""
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(status.st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("script", scripts())
def test_the_job_resumes_from_the_checkpoint_before_a_damaged_one(
    run, tmp_path, script, ray_folder
) -> None:
    run.environment |= {
        **OF_RAY,
        "RAY_TMPDIR": ray_folder,
        "CUDA_VISIBLE_DEVICES": "",
        "DAMAGED_ATTEMPTS": "1,2",
        "DS_ACCELERATOR": "cpu",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PATH": f"{programs_of(script)}:{os.environ['PATH']}",
    }
    folder = tmp_path / "ckpt"
    folder.mkdir()

    options = ("--checkpoint-dir", str(folder), "--nodes", NODES.get(script, "1"))
    run.start(*options, "--", "python", str(SCRIPTS / f"{script}.py"))
    saved, moved = {}, []
    for attempt, damage in ((1, cut_off), (2, flip)):
        saved |= wait_for_saves(run, attempt)
        _, name, path = saved[6]
        if damage is flip:
            wait_for_manifest(run, folder, name)
        damage(Path(path))
        moved.append(f"{name}.{attempt}" if name in moved else name)
        powered_off = run.holdfast("inject", "power-off", "--node", "0")
        assert powered_off.returncode == 0, powered_off.stderr
        assert resumed(run, attempt + 1) == f"resumed at 4 with {saved[4][0]}"
    code, output = run.finish()

    assert code == 0, output
    for attempt, target in zip((2, 3), moved, strict=True):
        lines = [line for line in output.splitlines() if f"before attempt {attempt}" in line]
        [broken] = [line for line in lines if "; moved to " in line]
        assert broken.endswith(f"; moved to {folder}.set-aside/{target}")
        assert re.search(
            rf"{re.escape(target.removesuffix('.2'))} is (damaged|incomplete): ", broken
        )
        [chosen] = [line for line in lines if " is complete" in line]
        assert re.search(rf"{re.escape(saved[4][1])} is complete", chosen)
    listed = run.holdfast("incidents", "list", "--output", "json")
    evidence = [one["checkpoint"] for one in json.loads(listed.stdout) if one["checkpoint"]]
    assert sorted((one["attempt"], one["resumed"]) for one in evidence) == [
        (2, saved[4][1]), (3, saved[4][1]),
    ]  # fmt: skip


def wait_for_saves(run, attempt: int) -> dict[int, tuple[str, str, str]]:
    log = run.dir.log(attempt, 0)
    run.wait_until(f"the last save of attempt {attempt}", lambda: 6 in saves_in(log))
    return saves_in(log)


def wait_for_manifest(run, folder: Path, name: str) -> None:
    run.wait_until("the verification of the save", lambda: manifest_of(folder, name))


def resumed(run, attempt: int) -> str:
    """The line of an attempt that names its step and its weights."""
    log = run.dir.log(attempt, 0)

    def lines() -> list[str]:
        text = log.read_text() if log.exists() else ""
        return re.findall(r"resumed at .*(?=\n)", text)

    return run.wait_until(f"the resume of attempt {attempt}", lines)[0]


def saves_in(log: Path) -> dict[int, tuple[str, str, str]]:
    """Step to digest of the weights, name of the checkpoint and its file, as a rank printed."""
    found = SAVED.findall(log.read_text()) if log.exists() else []
    return {int(step): (digest, name, path) for step, digest, name, path in found}
