"""A handful of the schedules that ``make chaos`` runs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model.errors import BackendError
from tests.effort import is_quick
from tests.engines.control_plane import PROGRAMS, Built
from tests.engines.real_cluster import REAL_PROGRAMS, missing_for_nodes
from tests.engines.slurm_cluster import SlurmPrograms, installed_slurm

ROOT = Path(__file__).parents[2]
KUBERNETES = ("kubernetes", "nodes")
"""Nodes that are played, and real ones, which take minutes: not in quick runs."""


pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="chaos mounts file systems: run as root"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="the clock needs a C compiler"),
]


@pytest.fixture
def programs() -> SlurmPrograms:
    try:
        return installed_slurm()
    except BackendError as error:
        pytest.skip(str(error))


@pytest.fixture
def local_platform() -> str:
    return "local"


def disturb(platform: str) -> None:
    command = [sys.executable, "-m", "tests.chaos", "--platform", platform, "--schedules", "3"]

    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, encoding="utf-8")

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.usefixtures("programs")
def test_disturbances_on_slurm_repair_nothing_that_is_healthy_and_lose_no_job() -> None:
    disturb("slurm")


def test_disturbances_of_a_run_repair_nothing_that_is_healthy_and_lose_no_job(
    local_platform: str,
) -> None:
    disturb(local_platform)


@pytest.mark.usefixtures("local_platform")
def test_disturbances_of_a_cluster_repair_nothing_that_is_healthy_and_lose_no_job() -> None:
    disturb("cluster")


@pytest.mark.parametrize("platform", KUBERNETES[:1] if is_quick() else KUBERNETES)
def test_disturbances_on_kubernetes_repair_nothing_that_is_healthy_and_lose_no_job(
    built: Built, platform: str
) -> None:
    if platform == "nodes" and (reason := missing_for_nodes()):
        pytest.skip(reason)
    built(*(REAL_PROGRAMS if platform == "nodes" else PROGRAMS), "kubectl", "helm")
    disturb(platform)
