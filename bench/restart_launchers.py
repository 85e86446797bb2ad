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
    """Packages of a peer. Empty: it is in this environment."""

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


LAUNCHERS: Final = (
    Launcher(
        "holdfast launch", (sys.executable, "-m", "holdfast", "launch"),
        ("--max-restarts", _RESTARTS), needs_node_rank=True,
    ),
    Launcher(
        "holdfast launch --warm", (sys.executable, "-m", "holdfast", "launch"),
        (
            "--max-restarts", _RESTARTS, "--warm",
            "--preload", "torch,transformers.models.gpt2.modeling_gpt2",
        ),
        needs_node_rank=True,
    ),
    Launcher(
        "torchrun", (sys.executable, "-m", "torch.distributed.run"),
        ("--max-restarts", _RESTARTS, "--rdzv-backend", "c10d"), is_peer=True,
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
        "holdfast run", (sys.executable, "-m", "holdfast", "run"),
        (
            "--name", "bench", "--logs", "none",
            "--max-retries", _RESTARTS, "--max-app-retries", _RESTARTS,
        ),
        starts_nodes=True,
    ),
)  # fmt: skip


def install(launcher: Launcher, folder: Path) -> Launcher:
    """Install a peer into a new environment; return the launcher with the path of its program.

    It gets the same Transformers as this environment, and the same PyTorch unless it needs another.
    If it is there already, nothing is installed.

    Raises:
        RuntimeError: it cannot be installed or started.

    """
    if not launcher.requirements:
        return launcher
    versions = {name: metadata.version(name).partition("+")[0] for name in _LIBRARIES}
    versions["torch"] = launcher.torch or versions["torch"]
    same = [f"{name}=={version}" for name, version in versions.items()]
    target = folder / launcher.requirements[0].partition("[")[0]
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
    return replace(launcher, program=(program,))


def uv() -> str:
    """Path of uv; empty if it is not installed."""
    return shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent)) or ""
