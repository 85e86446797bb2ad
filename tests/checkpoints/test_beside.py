"""Places beside a checkpoint directory, whatever path a user chooses."""

import os
import sys
from pathlib import Path

from holdfast.adapters.checkpoints.attempt_result import read_results
from holdfast.adapters.checkpoints.beside import places, resolved
from holdfast.adapters.checkpoints.directory import latest_step
from holdfast.adapters.checkpoints.history import read_history
from holdfast.adapters.checkpoints.manifests import DirectoryManifests
from holdfast.adapters.checkpoints.save_reports import read_reports, reports_size
from holdfast.model.checkpoints import CheckpointHistory


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
        assert [one.name for one in places(path, ".x")] == [f".{path.name}.x"]
        assert read_history(path) == CheckpointHistory()
        assert (read_results(path), read_reports(path), reports_size(path)) == ([], {}, 0)
        assert DirectoryManifests(path).names() == frozenset()
        assert latest_step(path) is None


def test_links_that_can_be_followed_are_resolved(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")

    assert resolved(tmp_path / "link") == Path(os.path.realpath(tmp_path)) / "real"
    assert [one.name for one in places(tmp_path / "link", ".x")] == [".real.x", ".x"]
