"""A state database that cannot be used is closed: retries do not run out of file descriptors."""

import contextlib
import os
import sqlite3
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


def test_another_layout_of_slurm_is_refused_with_its_remedy_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with contextlib.closing(SlurmStore(path)) as store:
        store.hold("node1", "later")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA user_version = 1")

    with pytest.raises(BackendError, match=r"has layout 1, .* move the file away") as raised:
        SlurmStore(path)

    assert str(path) in str(raised.value)
    assert str(path) not in {os.path.realpath(f"/proc/self/fd/{one}") for one in open_files()}
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA user_version = 2")
    with contextlib.closing(SlurmStore(path)) as store:
        assert store.read().holds == {"node1": "later"}


def open_files() -> list[str]:
    return os.listdir("/proc/self/fd")
