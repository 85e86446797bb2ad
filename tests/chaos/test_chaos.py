"""A handful of the schedules that ``make chaos`` runs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model.errors import BackendError
from tests.engines.control_plane import PROGRAMS, Built
from tests.engines.slurm_cluster import SlurmPrograms, installed_slurm

ROOT = Path(__file__).parents[2]


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


def test_disturbances_on_kubernetes_repair_nothing_that_is_healthy_and_lose_no_job(
    built: Built,
) -> None:
    built(*PROGRAMS, "kubectl", "helm")
    disturb("kubernetes")
