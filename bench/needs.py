"""What benchmarks need of the machine: each function returns what is missing, or nothing."""

import importlib.util
import shutil
from typing import Final

from holdfast.model.errors import BackendError
from tests.engines.control_plane import PROGRAMS
from tests.engines.slurm_cluster import installed_slurm
from tools.control_plane import CannotBuild, provide

CHROMIUM: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def chromium() -> str:
    """A browser for the console."""
    if any(shutil.which(name) for name in CHROMIUM):
        return ""
    return "Chromium is not installed: apt-get install chromium"


def control_plane(*more: str) -> str:
    """A Kubernetes control plane, and the programs ``more``; they are built if they can be."""
    try:
        provide(*PROGRAMS, *more)
    except CannotBuild as error:
        return str(error)
    return ""


def slurm() -> str:
    """The programs of Slurm."""
    try:
        installed_slurm()
    except BackendError as error:
        return str(error)
    return ""


def torch() -> str:
    """PyTorch."""
    is_there = importlib.util.find_spec("torch") is not None
    return "" if is_there else "PyTorch is not installed: make torch"
