"""A real Slurm cluster for each test of this folder that asks for one.

``HOLDFAST_TESTS_SLURM=26.05`` runs all of them on that release, instead of on that of the machine.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from final_states import FinalStates
from slurm_fleet_at_work import Fleet, a_fleet

from holdfast.model.errors import BackendError
from tests.engines.matrix import Matrix
from tests.engines.slurm_cluster import SlurmCluster, SlurmPrograms, installed_slurm
from tools.slurm_versions import SUITES, CannotGet, provide


@pytest.fixture(scope="session")
def programs(request: pytest.FixtureRequest) -> SlurmPrograms:
    """The Slurm of this machine, or a newer one for ``on_both_versions`` and ``on_newest_version``.

    Skips where it cannot be had.
    """
    asked = getattr(request, "param", "")
    version = asked if asked in SUITES else os.environ.get("HOLDFAST_TESTS_SLURM", "")
    try:
        return provide(version) if version else installed_slurm()
    except (BackendError, CannotGet) as error:
        pytest.skip(str(error))


@pytest.fixture
def final(programs: SlurmPrograms, matrix: Matrix) -> FinalStates:
    """What becomes of nodes and jobs in the end, to be compared with what was recorded."""
    return FinalStates(programs, matrix)


@pytest.fixture
def slurm(programs: SlurmPrograms, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    """Four idle nodes; the test itself also runs the commands of their release."""
    with SlurmCluster(programs, settings={"SuspendTimeout": "1"}) as cluster:
        monkeypatch.setenv("PATH", cluster.environment["PATH"])
        yield cluster


@pytest.fixture
def fleet(slurm: SlurmCluster, tmp_path: Path) -> Iterator[Fleet]:
    """The same, with an agent on each node."""
    with a_fleet(slurm, tmp_path) as fleet:
        yield fleet


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Show with a failure what Slurm and the controllers had to say."""
    report = yield
    values = list(getattr(item, "funcargs", {}).values()) if report.failed else []
    fleets = [one for one in values if isinstance(one, Fleet)]
    clusters = {one for one in values if isinstance(one, SlurmCluster)}
    for cluster in clusters | {fleet.slurm for fleet in fleets}:
        programs = ("slurmctld", *(f"slurmd.{name}" for name in cluster.machines))
        report.sections += [(f"end of {one}.log", cluster.log(one, 150)) for one in programs]
    for fleet in fleets:
        report.sections += [("controller", one.log) for one in fleet.controllers]
    return report
