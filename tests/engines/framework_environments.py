"""Virtual environments of frameworks that ``make frameworks`` does not install.

Each has its own, in ``build/frameworks``: their requirements exclude each other. uv links files
from its cache, so that an environment takes a second once its packages were downloaded.
"""

import fcntl
import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "build" / "frameworks"

PACKAGES: Final = {
    "composer": ("mosaicml", "torch", "torchvision"),
    "dlrover": ("dlrover[k8s,torch]", "numpy", "torch"),
    "megatron": ("megatron-core", "numpy", "psutil", "torch"),
    "megatron_lm": ("megatron-core>=0.19.2", "numpy", "psutil", "torch"),
    "nvrx": ("nvidia-resiliency-ext", "numpy", "torch"),
    "orbax": ("orbax-checkpoint", "jax"),
    "ray": ("ray[train]", "numpy", "torch"),
    "ray_jobs": ("ray[default]",),
    "torchtitan": ("torchtitan", "torch"),
}
"""Environment to its packages. Megatron-core imports psutil without requiring it, DLRover gRPC."""

_PYTHONS: Final = {"megatron_lm": "3.12"}
"""Environment to the oldest Python for which there is a wheel."""

_COMPILED: Final = ("ray_jobs",)
"""Environments for pods, which cannot write the bytecode of what they import."""

_UV: Final = str(Path(sys.executable).with_name("uv"))

_NEWER: Final = ("numpy>=1.26", "torchvision")
"""Instead of the versions that frameworks require: they run with newer ones."""


def environment_of(name: str) -> Path:
    """Return the directory of the environment, which is built first if it does not exist.

    Skips the test if there is no Python that is new enough.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    folder, stamp = FOLDER / name, FOLDER / f"{name}.built"
    torch = f"torch=={importlib.metadata.version('torch').partition('+')[0]}"
    built = "\n".join((sys.prefix, torch, *PACKAGES[name]))
    with (FOLDER / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text(encoding="utf-8") != built:
            stamp.unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
            _build(folder, name, torch)
            stamp.write_text(built, encoding="utf-8")
    return folder


def _python(name: str) -> str:
    """The Python that runs the tests, or another one if it is too old. Skips without one."""
    oldest = _PYTHONS.get(name, "3.11")
    if sys.version_info >= tuple(map(int, oldest.split("."))):
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    paths = [str(one) for one in pyenv.glob("versions/*/bin")]
    done = subprocess.run(
        [_UV, "python", "find", "--no-python-downloads", oldest],
        check=False, capture_output=True, text=True,
        env={**os.environ, "PATH": os.pathsep.join((*paths, os.environ["PATH"]))},
    )  # fmt: skip
    if done.returncode != 0:
        pytest.skip(f"there is no Python {oldest}")
    return done.stdout.strip()


def _build(folder: Path, name: str, torch: str) -> None:
    newer = FOLDER / f"{name}.txt"
    newer.write_text("\n".join((torch, *_NEWER)), encoding="utf-8")
    _uv("venv", "--python", _python(name), str(folder))
    _uv(
        "pip", "install", "--python", str(folder / "bin/python"), "--override", str(newer),
        *["--compile-bytecode"] * (name in _COMPILED), *PACKAGES[name],
    )  # fmt: skip


def _uv(*arguments: str) -> None:
    done = subprocess.run([_UV, *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
