"""One cluster of real nodes for all tests of this folder, with Holdfast installed by its chart."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from full_disk import SIZE, Submit, submitting
from operator_jobs import undisturbed
from phases import Phases
from site_of_nodes import Site, installed_site
from small_disk import SmallDisk

from tests.engines.control_plane import Built
from tests.engines.job_operators import (
    MPI_OPERATOR,
    TRAINING_OPERATOR,
    run_mpi_operator,
    run_training_operator,
)
from tests.engines.job_sets import run_jobset
from tests.engines.matrix import Matrix
from tests.engines.real_cluster import REAL_PROGRAMS, missing_for_nodes
from tests.engines.trainer import TRAINER, run_trainer


@pytest.fixture(scope="session")
def node_programs(built: Built) -> dict[str, Path]:
    """What real nodes and clients of their cluster are made of; skips where they cannot run."""
    if reason := missing_for_nodes():
        pytest.skip(reason)
    return built(*REAL_PROGRAMS, "kubectl", "helm")


@pytest.fixture(scope="session")
def whole_site(
    node_programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    with installed_site(node_programs, tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture(scope="session")
def training_operator(whole_site: Site, built: Built, node_programs: dict[str, Path]) -> None:
    """PyTorchJobs run from now on; their workers need not wait for the name of the master."""
    plane = whole_site.cluster.plane
    (plane.folder / "initContainer.yaml").write_text("[]", encoding="utf-8")
    run_training_operator(plane, {**node_programs, **built(TRAINING_OPERATOR)}, "PyTorchJob")


@pytest.fixture(scope="session")
def operators(
    whole_site: Site, built: Built, node_programs: dict[str, Path], training_operator: None
) -> None:
    """The operators of all kinds of ``operator_jobs`` run from now on."""
    binaries = {**node_programs, **built(MPI_OPERATOR, "jobset", TRAINER)}
    plane = whole_site.cluster.plane
    run_mpi_operator(plane, binaries)
    run_jobset(plane, binaries["jobset"], binaries)
    run_trainer(plane, binaries)


@pytest.fixture(scope="session")
def digests(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Digests of the weights after each step, for the minutes that jobs train."""
    return undisturbed(tmp_path_factory.mktemp("undisturbed"), 2000)


@pytest.fixture
def site(whole_site: Site) -> Iterator[Site]:
    """All nodes are in service, and there are no jobs; also after the test."""
    yield whole_site
    try:
        whole_site.clear()
    except Exception as error:
        error.add_note(whole_site.tell())  # now: it ends with this teardown
        raise


@pytest.fixture
def phases(site: Site, matrix: Matrix) -> Phases:
    """Takes times for the fault matrix; no test depends on them."""
    return Phases(site, matrix)


@pytest.fixture
def disk(site: Site, tmp_path: Path) -> Iterator[SmallDisk]:
    """A disk that all nodes have and that a test can fill."""
    if not Path("/dev/loop-control").exists():
        pytest.skip("a file system in a file needs loop devices: modprobe loop")
    with SmallDisk(site.cluster, tmp_path, SIZE) as disk:
        yield disk


@pytest.fixture
def submit(site: Site, disk: SmallDisk) -> Iterator[Submit]:
    with submitting(site, disk) as submit:
        yield submit


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Show with a failure what people look at."""
    report = yield
    site = getattr(item, "funcargs", {}).get("whole_site")
    if report.failed and report.when == "call" and site is not None:
        report.sections += [("the cluster", site.tell()), ("nodes", site.cluster.journals())]
    return report
