"""Helm, a real control plane, and the chart installed on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from chart import Helm
from installation import Installation

from tests.engines.control_plane import PROGRAMS, ControlPlane
from tools.control_plane import CannotBuild, provide


@pytest.fixture(scope="session")
def helm() -> Helm:
    return Helm(programs_of("helm")["helm"])


@pytest.fixture(scope="session")
def installation() -> Iterator[Installation]:
    """The plain manifests on a cluster of two nodes, with a pod of each agent."""
    programs = programs_of(*PROGRAMS, "kubectl")
    with ControlPlane(programs) as plane:
        installed = Installation(plane, programs["kubectl"])
        installed.install()
        yield installed


def programs_of(*names: str) -> dict[str, Path]:
    """Programs of the control plane; skips where they cannot be built."""
    try:
        return provide(*names)
    except CannotBuild as error:
        pytest.skip(str(error))
