"""A real Kubernetes control plane for all tests of this folder, and a clean one for each."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from clean_slate import CleanSlate
from controlled import api_of, install
from machines import Fleet, a_fleet
from real_cluster import Cluster, connected
from trainers import runtimes

from holdfast.adapters.kubernetes.client.api import Api
from tests.engines.control_plane import PROGRAMS, Built, ControlPlane
from tests.engines.job_operators import (
    MPI_OPERATOR,
    TRAINING_OPERATOR,
    run_mpi_operator,
    run_training_operator,
)
from tests.engines.job_sets import run_jobset
from tests.engines.kubelet import PodServer
from tests.engines.trainer import TRAINER, run_trainer


@pytest.fixture(scope="session")
def binaries(built: Built) -> dict[str, Path]:
    """The programs of the control plane, kubectl, KWOK and helm."""
    return built(*PROGRAMS, "kubectl", "kwok", "helm")


@pytest.fixture(scope="session")
def control_plane(binaries: dict[str, Path]) -> Iterator[ControlPlane]:
    """Shared by all tests; take ``cluster`` to begin with a clean one."""
    with ControlPlane(binaries) as plane:
        yield plane


@pytest.fixture(scope="session")
def training_operator(built: Built, control_plane: ControlPlane, binaries: dict[str, Path]) -> None:
    """Kubeflow's training operator runs from now on, for ``PyTorchJob`` and its like."""
    run_training_operator(control_plane, {**binaries, **built(TRAINING_OPERATOR)})


@pytest.fixture(scope="session")
def job_sets(built: Built, control_plane: ControlPlane, binaries: dict[str, Path]) -> None:
    """The JobSet controller runs from now on."""
    run_jobset(control_plane, built("jobset")["jobset"], binaries)


@pytest.fixture(scope="session")
def trainer(
    built: Built,
    job_sets: None,
    control_plane: ControlPlane,
    binaries: Mapping[str, Path],
) -> None:
    """Kubeflow's trainer runs from now on."""
    run_trainer(control_plane, {**binaries, **built(TRAINER)}, *runtimes())


@pytest.fixture
def mpi_fleet(built: Built, binaries: Mapping[str, Path], tmp_path: Path) -> Iterator[Fleet]:
    """On a control plane of its own, as the training operator has another ``mpijobs``."""
    operator = built(MPI_OPERATOR)
    with ControlPlane(binaries) as plane, connected(plane, binaries) as cluster:
        run_mpi_operator(plane, {**binaries, **operator})
        install(cluster)
        with a_fleet(cluster, tmp_path) as fleet:
            yield fleet


@pytest.fixture
def cluster(control_plane: ControlPlane, binaries: dict[str, Path]) -> Iterator[Cluster]:
    """A cluster with no nodes yet; whatever a test puts there is gone afterwards."""
    slate = CleanSlate(control_plane)
    with connected(control_plane, binaries) as cluster:
        yield cluster
    slate.restore()


@pytest.fixture
def api(cluster: Cluster) -> Iterator[Api]:
    """A client who may do everything."""
    api = api_of(cluster)
    yield api
    api.close()


@pytest.fixture
def kubelet(cluster: Cluster) -> Iterator[PodServer]:
    """What the API server asks about pods, on the nodes that it is to serve."""
    with PodServer(cluster.plane) as kubelet:
        yield kubelet


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Show with a failure what the control plane had to say."""
    report = yield
    plane = getattr(item, "funcargs", {}).get("control_plane")
    if report.failed and plane is not None:
        report.sections += [
            (f"end of the log of {name}", plane.log(name)) for name in plane.programs
        ]
    return report
