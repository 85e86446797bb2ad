from pathlib import Path

import pytest

from holdfast.adapters.slurm.nodes.leadership import FileLock
from holdfast.model.errors import BackendError


def test_one_of_several_leads_until_it_ends(tmp_path: Path) -> None:
    first, second = (FileLock(tmp_path, may_take=True) for _ in range(2))

    assert first.is_held()
    assert not second.is_held()
    assert first.is_held()
    first.close()

    assert not first.is_held()
    assert second.is_held()
    second.close()


def test_a_reader_never_leads(tmp_path: Path) -> None:
    reader = FileLock(tmp_path / "none", may_take=False)

    assert not reader.is_held()
    reader.close()


def test_a_directory_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BackendError, match="cannot write"):
        FileLock(tmp_path / "file", may_take=True)
