"""Small files of a machine that has no file descriptors left."""

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.adapters.host import accelerators, host_state, network
from holdfast.adapters.host.small_files import names_in, read_small
from holdfast.apps.checks.config import CheckConfig
from holdfast.apps.checks.job import missing_devices
from holdfast.apps.checks.node import target_of
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.main import run
from holdfast.model.errors import BackendError
from holdfast.model.node_checks import Level
from tests.ports.builders import NOW

CARD = "sys/class/infiniband/mlx5_0"
NEURON = "sys/devices/virtual/neuron_device/neuron0"


@contextmanager
def no_descriptor() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in {
        f"{CARD}/device/vendor": "0x15b3",
        f"{CARD}/ports/1/state": "4: ACTIVE",
        f"{NEURON}/reset": "1",
        "sys/devices/system/edac/mc/mc0/ue_count": "0",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    "read",
    [
        lambda root: network.Ports(root).read().values,
        network.efa_devices,
        accelerators.neuron,
        host_state.edac,
        lambda root: read_small(root / CARD / "device/vendor"),
        lambda root: names_in(root / CARD / "ports"),
    ],
)
def test_without_descriptors_a_reading_fails_and_lacks_no_device(
    root: Path, read: Callable[[Path], object]
) -> None:
    before = read(root)
    with no_descriptor(), pytest.raises(BackendError, match="Too many open files"):
        read(root)
    assert read(root) == before


def test_without_descriptors_a_check_has_no_result(root: Path) -> None:
    config = CheckConfig(root=root)
    target = target_of(config, "", Level.QUICK)
    argv = ["check", "node", "--only", "efa", "--dry-run"]
    assert run(argv) == ExitCode.OK

    with no_descriptor(), pytest.raises(BackendError):
        missing_devices(target, NOW)
    with no_descriptor():
        assert run(argv) == ExitCode.BAD_INPUT


def test_a_file_that_is_missing_or_unreadable_has_no_value(root: Path) -> None:
    assert read_small(root / "missing") is None
    assert read_small(root / f"{CARD}/device/vendor/below") is None
    assert read_small(root) is None  # EISDIR
    assert names_in(root / "missing") == names_in(root / f"{NEURON}/reset") == []
    if os.geteuid():
        (root / f"{NEURON}/reset").chmod(0)
        assert read_small(root / f"{NEURON}/reset") is None
