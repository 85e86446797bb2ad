"""Places beside a checkpoint directory, whatever path a user chooses."""

import os
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.adapters.checkpoints.attempt_result import read_results
from holdfast.adapters.checkpoints.beside import places, resolved
from holdfast.adapters.checkpoints.directory import latest_step
from holdfast.adapters.checkpoints.history import read_history
from holdfast.adapters.checkpoints.manifests import DirectoryManifests, only_writer
from holdfast.adapters.checkpoints.save_reports import read_reports, reports_size
from holdfast.model.checkpoints import CheckpointHistory
from holdfast.model.errors import BackendError


def hostile_paths(base: Path) -> list[Path]:
    """Paths that the kernel refuses to follow."""
    (base / "loop").symlink_to("loop")
    (base / "link-0").symlink_to("end")
    for number in range(1, 2 * sys.getrecursionlimit()):
        (base / f"link-{number}").symlink_to(f"link-{number - 1}")
    last = base / f"link-{2 * sys.getrecursionlimit() - 1}"
    return [base / "loop", base / "loop/below", last, last / "below", base / ("n" * 300),
            base / ("long/" * 2000)]  # fmt: skip


def test_a_path_that_cannot_be_followed_counts_as_a_directory_without_files(
    tmp_path: Path,
) -> None:
    for path in hostile_paths(tmp_path):
        followed = resolved(path)  # since Python 3.13, also a chain of any length
        assert [one.name for one in places(path, ".x")] == [f".{followed.name}.x"]
        assert read_history(path) == CheckpointHistory()
        assert (read_results(path), read_reports(path), reports_size(path)) == ([], {}, 0)
        assert DirectoryManifests(path).names() == frozenset()
        assert latest_step(path) is None


def test_links_that_can_be_followed_are_resolved(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")

    assert resolved(tmp_path / "link") == Path(os.path.realpath(tmp_path)) / "real"
    assert [one.name for one in places(tmp_path / "link", ".x")] == [".real.x", ".x"]


@pytest.mark.attack
def test_one_process_writes_at_a_time_and_the_next_does_not_wait_for_ever(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    lock = tmp_path / ".checkpoints.holdfast-watch"
    lock.touch(0o666)

    with only_writer(folder):
        assert lock.stat().st_mode & 0o777 == 0o600
        with (
            pytest.raises(BackendError, match="another process watches this directory"),
            only_writer(folder, timedelta(0)),
        ):
            pytest.fail("two processes write")
    with only_writer(folder, timedelta(0)):
        assert lock.read_bytes() == b""
