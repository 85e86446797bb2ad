"""A state database that cannot be used is closed: retries do not run out of file descriptors."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.adapters.local.store import LocalStore
from holdfast.adapters.slurm.nodes.state import SlurmStore
from holdfast.model.errors import BackendError


@pytest.mark.parametrize("store", [LocalStore, SlurmStore])
@pytest.mark.parametrize("content", [b"no database " * 999, b"SQLite format 3\0" + b"\xff" * 4096])
def test_a_damaged_file_is_closed(
    store: Callable[[Path], object], content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(content)

    with pytest.raises(BackendError) as raised:
        store(path)

    assert str(path) not in {os.path.realpath(f"/proc/self/fd/{one}") for one in open_files()}
    assert str(path) in str(raised.value)


def open_files() -> list[str]:
    return os.listdir("/proc/self/fd")
