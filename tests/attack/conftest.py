"""Marks the tests of this folder as attacks; a Slurm cluster that a local user can reach."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm.slurm_fleet_at_work import Fleet, a_fleet

from holdfast.model.errors import BackendError
from tests.engines.slurm_cluster import SlurmCluster, SlurmPrograms, installed_slurm


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test of this folder before ``-m attack`` selects."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("attack")


@pytest.fixture
def programs() -> SlurmPrograms:
    """The Slurm of this machine; with it, these tests are of the suite ``slurm``."""
    try:
        return installed_slurm()
    except BackendError as error:
        pytest.skip(str(error))


@pytest.fixture
def fleet(programs: SlurmPrograms) -> Iterator[Fleet]:
    """A fleet whose report directory and munge a local user can reach."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    try:
        with SlurmCluster(programs, settings={"SuspendTimeout": "1"}) as slurm:
            slurm.folder.chmod(0o711)  # so that munged can be reached, as below /run/munge
            with a_fleet(slurm, folder) as fleet:
                yield fleet
    finally:
        shutil.rmtree(folder)
