"""Helm, a real control plane, and the chart installed on it."""

from collections.abc import Iterator

import pytest
from chart import Helm
from installation import Installation

from tests.engines.control_plane import PROGRAMS, Built, ControlPlane


@pytest.fixture(scope="session")
def helm(built: Built) -> Helm:
    return Helm(built("helm")["helm"])


@pytest.fixture(scope="module")
def installation(built: Built) -> Iterator[Installation]:
    """The plain manifests on a cluster of two nodes, with a pod of each agent."""
    programs = built(*PROGRAMS, "kubectl")
    with ControlPlane(programs) as plane:
        installed = Installation(plane, programs["kubectl"])
        installed.install()
        yield installed
