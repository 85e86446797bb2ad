"""A real Kubernetes control plane for all tests of this folder, and a clean one for each."""

from collections.abc import Iterator

import pytest
from lightkube import Client, KubeConfig

from holdfast.testing.control_plane import PROGRAMS, ControlPlane
from tools.control_plane import CannotBuild, provide


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """Shared by all tests: what one of them leaves behind, the others see. Take ``cluster``."""
    try:
        binaries = provide(*PROGRAMS, "kubectl", "kwok")
    except CannotBuild as error:
        pytest.skip(str(error))
    with ControlPlane(binaries) as plane:
        yield plane


@pytest.fixture
def client(control_plane: ControlPlane) -> Iterator[Client]:
    """A client of the user who may do everything."""
    client = Client(KubeConfig.from_file(control_plane.kubeconfig()), trust_env=False)
    yield client
    client.close()
