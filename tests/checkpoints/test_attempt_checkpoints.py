"""What is reported of checkpoints before an attempt."""

import os
from pathlib import Path

import pytest
from recorded import flip, keeping_times, unpacked

from holdfast.adapters.checkpoints.dcp import Index, read_index
from holdfast.adapters.checkpoints.plain_files import listed, opened
from holdfast.adapters.checkpoints.torch_archive import records
from holdfast.apps.run.checkpoints import DEPTH_VARIABLE, Prepared, prepare, prepare_step
from holdfast.model.checkpoints import Depth


@pytest.fixture
def flipped(tmp_path: Path) -> Path:
    """A directory whose newest checkpoint has a flipped bit in a tensor."""
    folder = unpacked("dcp", tmp_path) / "sync"
    shard = folder / "step_3/__1_0.distcp"
    index = read_index(shard.parent, listed(shard.parent))
    assert isinstance(index, Index)
    with opened(shard) as window:
        at = next(
            item.offset + records(window.part(item.offset, item.length))["data/0"].offset
            for item in index.files[shard.name]
            if "data/0" in records(window.part(item.offset, item.length))
        )
    keeping_times(shard, lambda: flip(shard, at))
    return folder


def test_a_step_of_slurm_compares_checksums_where_its_environment_says_so(flipped: Path) -> None:
    assert prepare_step(flipped, {}) == Prepared(lines=[], step=3)

    prepared = prepare_step(flipped, {DEPTH_VARIABLE: "hashes"})

    broken, chosen = prepared.lines
    assert prepared.step == 2
    assert broken.startswith(f"{flipped}: step_3 is damaged: __1_0.distcp: tensor ")
    assert " at offset " in broken
    assert ": has a wrong checksum in record " in broken
    assert "step_2 is complete (sizes and checksums); the script should load it" in chosen
    assert "; the job repeats 1 step" in chosen


def test_an_unknown_depth_is_reported_and_sizes_are_compared(flipped: Path) -> None:
    prepared = prepare_step(flipped, {DEPTH_VARIABLE: "deep"})

    wanted = f"{DEPTH_VARIABLE} is 'deep', expected sizes or hashes; sizes is used"
    assert prepared == Prepared(lines=[wanted], step=3)


def test_each_checkpoint_that_is_moved_has_a_line_with_its_reason(tmp_path: Path) -> None:
    folder = unpacked("dcp", tmp_path) / "sync"
    (folder / "step_3/__1_0.distcp").write_bytes(b"")
    (folder / "step_2/.metadata").unlink()

    first, second, chosen = prepare(folder, Depth.SIZES).lines

    aside = f"{folder}.set-aside"
    assert first.startswith(f"{folder}: step_3 is damaged: __1_0.distcp has 0 bytes instead of ")
    assert first.endswith(f"; moved to {aside}/step_3")
    assert second == (
        f"{folder}: step_2 is incomplete: .metadata, which is written last, is missing; moved to"
        f" {aside}/step_2"
    )
    assert "step_1 is complete (sizes only; checksums not compared, set jobs.ch" in chosen


def test_the_defect_of_a_checkpoint_of_one_file_is_a_sentence(tmp_path: Path) -> None:
    folder = unpacked("torch_save", tmp_path) / "zip"
    newest = folder / "checkpoint_000300.pt"
    keeping_times(newest, lambda: os.truncate(newest, newest.stat().st_size // 2))

    broken = prepare(folder, Depth.SIZES).lines[0]

    assert f"{newest.name} is incomplete: it is truncated: its zip directory" in broken


def test_a_damaged_first_checkpoint_is_reported_before_an_attempt(tmp_path: Path) -> None:
    folder = unpacked("torch_save", tmp_path) / "zip"
    for path in sorted(folder.iterdir())[1:]:
        path.unlink()
    [path] = folder.iterdir()
    flip(path, path.stat().st_size // 2)

    broken, result = prepare(folder, Depth.HASHES).lines

    assert f"{path.name} is damaged: has a wrong checksum in record" in broken
    assert "no checkpoint is complete; nothing was changed" in result
    assert path.exists()
