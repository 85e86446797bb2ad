"""A real Slurm cluster for each test of this folder that asks for one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from slurm_fleet_at_work import Fleet

from holdfast.model.errors import BackendError
from holdfast.testing.slurm_cluster import SlurmCluster, SlurmPrograms, installed_slurm


@pytest.fixture(scope="session")
def programs() -> SlurmPrograms:
    """The Slurm of this machine; skips where there is none."""
    try:
        return installed_slurm()
    except BackendError as error:
        pytest.skip(str(error))


@pytest.fixture
def slurm(programs: SlurmPrograms) -> Iterator[SlurmCluster]:
    """Four idle nodes."""
    with SlurmCluster(programs, settings={"SuspendTimeout": "1"}) as cluster:
        yield cluster


@pytest.fixture
def fleet(slurm: SlurmCluster, tmp_path: Path) -> Iterator[Fleet]:
    """The same, with an agent on each node."""
    with a_fleet(slurm, tmp_path) as fleet:
        yield fleet


@contextmanager
def a_fleet(slurm: SlurmCluster, folder: Path) -> Iterator[Fleet]:
    fleet = Fleet(slurm, folder)
    fleet.start_agents()
    try:
        yield fleet
    finally:
        fleet.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Show with a failure what Slurm and the controllers had to say."""
    report = yield
    arguments = getattr(item, "funcargs", {})
    if report.failed and "slurm" in arguments:
        report.sections.append(("end of slurmctld's log", arguments["slurm"].log()))
    if report.failed and "fleet" in arguments:
        report.sections += [("controller", one.log) for one in arguments["fleet"].controllers]
    return report
