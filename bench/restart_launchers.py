"""Launchers that restart a training script: ours and those of others."""

import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Final

_RESTARTS: Final = "1000"
_INSTALL_S: Final = 900
_LIBRARIES: Final = ("torch", "transformers")
_DLROVER_TORCH: Final = "2.8.0"
"""DLRover 0.6.1 starts processes with a class of PyTorch whose parameters 2.9 has changed."""


@dataclass(frozen=True, slots=True)
class Launcher:
    """A command that starts and restarts ranks."""

    name: str
    program: tuple[str, ...]
    options: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    """What to install; launchers with the same requirements share an environment."""

    torch: str = ""
    """Version of PyTorch; empty for that of this environment."""

    has_spare: bool = True
    """Whether it can replace a lost node."""

    starts_nodes: bool = False
    """Whether one command starts all nodes."""

    needs_node_rank: bool = False
    """Whether node rank 0 sets the node of the rendezvous."""

    is_peer: bool = False
    """Whether it is not a part of Holdfast."""


_ROOT: Final = Path(__file__).parents[1]
_OWN: Final = (str(_ROOT),)
"""torchrun is measured in the environment of Holdfast."""

LAUNCHERS: Final = (
    Launcher(
        "holdfast launch", ("holdfast", "launch"), ("--max-restarts", _RESTARTS), _OWN,
        needs_node_rank=True,
    ),
    Launcher(
        "holdfast launch --warm", ("holdfast", "launch"),
        (
            "--max-restarts", _RESTARTS, "--warm",
            "--preload", "torch,transformers.models.gpt2.modeling_gpt2",
        ),
        _OWN, needs_node_rank=True,
    ),
    Launcher(
        "torchrun", ("torchrun",), ("--max-restarts", _RESTARTS, "--rdzv-backend", "c10d"), _OWN,
        is_peer=True,
    ),
    Launcher(
        "ft_launcher (NVRx)", ("ft_launcher",),
        ("--max-restarts", _RESTARTS, "--rdzv-backend", "c10d", "--ignore-missing-fault-tol-cfg"),
        ("nvidia-resiliency-ext",), is_peer=True,
    ),
    Launcher(
        "dlrover-run", ("dlrover-run",), ("--standalone", "--max-restarts", _RESTARTS),
        ("dlrover[k8s,torch]", "protobuf"), torch=_DLROVER_TORCH, has_spare=False, is_peer=True,
    ),
    Launcher(
        "holdfast run", ("holdfast", "run"),
        (
            "--name", "bench", "--logs", "none",
            "--max-retries", _RESTARTS, "--max-app-retries", _RESTARTS,
        ),
        _OWN, starts_nodes=True,
    ),
)  # fmt: skip


def install(launcher: Launcher, folder: Path) -> Launcher:
    """Install a launcher into a new environment; return it with the path of its program.

    Each environment has the Transformers of this one, its PyTorch unless the launcher needs
    another, and nothing else: Transformers imports more where more is installed, and imports are
    most of a restart. If it is there already, nothing is installed.

    Raises:
        RuntimeError: it cannot be installed or started.

    """
    versions = {name: metadata.version(name).partition("+")[0] for name in _LIBRARIES}
    versions["torch"] = launcher.torch or versions["torch"]
    same = [f"{name}=={version}" for name, version in versions.items()]
    target = folder / Path(launcher.requirements[0].partition("[")[0]).name
    python = str(target / "bin" / "python")
    program = str(target / "bin" / launcher.program[0])
    steps = [
        (uv(), "venv", "--quiet", "--python", sys.executable, str(target)),
        (uv(), "pip", "install", "--quiet", "--python", python, *launcher.requirements, *same),
    ]
    for command in [*([] if Path(program).exists() else steps), (program, "--help")]:
        done = subprocess.run(
            command, capture_output=True, check=False, encoding="utf-8", timeout=_INSTALL_S
        )
        if done.returncode:
            raise RuntimeError(f"{launcher.name}: {done.stderr.strip().splitlines()[-1]}")
    return replace(launcher, program=(program, *launcher.program[1:]))


def python_of(launcher: Launcher) -> str:
    """Path of the interpreter of an installed launcher."""
    return str(Path(launcher.program[0]).with_name("python"))


def uv() -> str:
    """Path of uv; empty if it is not installed."""
    return shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent)) or ""
