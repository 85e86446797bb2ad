"""What training frameworks do with a damaged newest checkpoint, alone and after ``verify``.

The jobs are those of ``tests/local/frameworks/resuming``. Each saves at steps 2, 4 and 6 and ends;
the file with the weights of the last save is damaged; then the job is started again, and reports
from which step and weights it resumes.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from bench.figure import Figure
from holdfast.apps.run.checkpoint_watch import SETTLE
from holdfast.kit.free_ports import free_port
from tests.engines.framework_environments import environment_of
from tools.deepspeed_ops import EXTENSIONS

SCRIPTS: Final = Path(__file__).parents[1] / "tests/local/frameworks/resuming"

JOBS: Final = {
    "torch_save": ("torch.save", "torch"),
    "dcp": ("DCP", "torch"),
    "safetensors_file": ("safetensors", "safetensors"),
    "lightning_file": ("Lightning", "lightning"),
    "hf_trainer": ("HF Trainer", "transformers"),
    "accelerate_state": ("Accelerate", "accelerate"),
    "deepspeed_latest": ("DeepSpeed", "deepspeed"),
    "torchtitan_manager": ("torchtitan", "uv"),
}
"""Script to the name of the framework, and its package, or uv, which builds its environment."""

ENVIRONMENTS: Final = {"torchtitan_manager": "torchtitan"}
"""Script to its environment, if ``make frameworks`` does not install its framework."""

_SAVED: Final = re.compile(r"saved (\d+) with (\w+) as (.*): (.*)")
_RESUMED: Final = re.compile(r"resumed at (\d+) with (\w+)")
_LIMIT_S: Final = 300


def figures(home: Path) -> Iterator[Figure]:
    """Yield for each installed framework and kind of damage from which step it resumes alone.

    The unit is ``right``, ``wrong`` if the weights are not those of that step, or ``fails``. Then
    comes in how many of the cases it does not resume with right weights after ``verify``.
    """
    for script, (title, package) in JOBS.items():
        if importlib.util.find_spec(package) is not None:
            yield from _of_framework(home / script, script, title)


def _of_framework(home: Path, script: str, title: str) -> Iterator[Figure]:
    saved = home / "saved"
    (saved / "ckpt").mkdir(parents=True)
    steps = {
        int(step): (digest, Path(path).relative_to(saved))
        for step, digest, _, path in _SAVED.findall(_trained(script, saved / "ckpt", "save"))
    }
    time.sleep(SETTLE.total_seconds())
    _holdfast("watch", saved / "ckpt", "--once", "--cpu-limit", "100")
    bad = 0
    for damage, change in DAMAGES.items():
        results = []
        for is_verified in (False, True):
            folder = home / "damaged"
            shutil.copytree(saved, folder)
            change(folder / steps[max(steps)][1])
            if is_verified:
                _holdfast("verify", folder / "ckpt", "--job-stopped")
            results.append(_outcome(_trained(script, folder / "ckpt", "resume"), steps))
            shutil.rmtree(folder)
        (step, kind), (_, after) = results
        bad += after != "right"
        yield Figure(name=f"{title} alone, {damage}: resumes at", value=step, unit=kind, goal=None)
    named = f"{title} after verify: wrong or no resume"
    yield Figure(name=named, value=bad, unit=f"of {len(DAMAGES)}", goal=0)


def _outcome(output: str, steps: dict[int, tuple[str, Path]]) -> tuple[int, str]:
    """Return the step from which a job resumed, and whether its weights are those of the step."""
    found = _RESUMED.search(output)
    if found is None:
        return 0, "fails"
    step = int(found[1])
    return step, "right" if step in steps and steps[step][0] == found[2] else "wrong"


def _trained(script: str, folder: Path, until: str) -> str:
    """Run a job until its last save, or until it has resumed. Returns what it printed."""
    environment = os.environ | {
        "CUDA_VISIBLE_DEVICES": "",
        "DS_ACCELERATOR": "cpu",
        "HF_HUB_OFFLINE": "1",
        "HOLDFAST_CHECKPOINT_DIR": str(folder),
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
        "RANK": "0",
        "WORLD_SIZE": "1",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "STOP_AFTER": until,
        "TORCH_EXTENSIONS_DIR": str(EXTENSIONS),
    }
    name = ENVIRONMENTS.get(script)
    python = environment_of(name) / "bin" / "python" if name else sys.executable
    done = subprocess.run(
        [str(python), str(SCRIPTS / f"{script}.py")],
        cwd=folder.parent, env=environment, capture_output=True, text=True, timeout=_LIMIT_S,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0 or until == "resume", done.stderr
    return done.stdout


def _holdfast(*arguments: object) -> None:
    command = [sys.executable, "-m", "holdfast", "checkpoint", *map(str, arguments)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=_LIMIT_S)


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _flip(path: Path) -> None:
    """Flip a bit, as a fault of the storage does: the file gets no other time."""
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


DAMAGES: Final[dict[str, Callable[[Path], None]]] = {"cut in half": _cut, "a bit flipped": _flip}
