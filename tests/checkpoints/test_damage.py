"""Real checkpoints, damaged in every way: none that is damaged is chosen, none is lost."""

import io
import os
import re
import shutil
import zipfile
from pathlib import Path

import pytest
from effort import examples, some
from recorded import (
    content,
    cuts,
    files_of,
    flip,
    guarded,
    keeping_times,
    unpacked,
    verified,
    zero,
)

from holdfast.adapters.checkpoints.dcp import Index, read_index
from holdfast.adapters.checkpoints.plain_files import listed
from holdfast.decisions.checkpoint_choice import ResumeOutcome
from holdfast.model.checkpoints import CheckpointState, Depth
from tools.checkpoint_damage import RECORDINGS

CASES = {
    **{
        tuple(name.split("/")): (one.newest, one.before)
        for name, one in RECORDINGS.items()
        if one.format != "ray-train"  # its names and its list are in test_more_formats.py
    },
    ("accelerate", ""): ("checkpoints/checkpoint_2", "checkpoints/checkpoint_1"),
    ("orbax", "items"): ("300", "200"),
}
"""Recording and its directory, to the newest checkpoint and the one before."""

SUMMED = (".distcp", ".pt", ".pth", ".bin", ".pkl")
"""Suffixes of files with checksums."""

SPARE = {
    ("orbax", "one_item"): ("process_0", "ocdbt.process_0", "d"),
    ("orbax", "items"): ("process_0", "ocdbt.process_0", "d"),
    ("nvrx_local", "replicated"): ("0", "1", "2", "3"),  # each has a replica
}
"""Files, or their directories, that a format does not miss if they are gone."""

OTHER_CUTS = ("torch_save", "orbax", "nvrx_local")
"""Recordings whose interrupted saves have other tests."""

UNCHECKED = {"commit_success.txt", "config.json", "generation_config.json", "written_by.json"}
"""Files that hold no state of the training."""

both = pytest.mark.parametrize(("case", "names"), some(CASES.items()), ids="-".join)


def state_files(folder: Path, name: str) -> list[Path]:
    return [
        one for one in files_of(folder, name) if one.stat().st_size and one.name not in UNCHECKED
    ]


def data_of(files: list[Path]) -> list[tuple[str, bytes]]:
    return sorted((one.name, one.read_bytes()) for one in files)


@both
def test_what_a_framework_wrote_is_complete_and_left_alone(tmp_path: Path, case, names) -> None:
    folder = unpacked(case[0], tmp_path) / case[1]
    before = content(folder)

    for depth in Depth:
        found = guarded(folder, depth)
        assert found.choice.resume is not None
        assert (found.choice.resume.name, found.choice.resume.depth) == (names[0], depth)
        assert not found.has_changes
    assert content(folder) == before


@both
def test_a_file_that_is_cut_off_or_gone_is_seen_by_its_size(tmp_path: Path, case, names) -> None:
    folder = unpacked(case[0], tmp_path) / case[1]
    for path in state_files(folder, names[0]):
        is_spare = {path.name, path.parent.name} & set(SPARE.get(case, ()))
        is_needed = path != folder / names[0] and not is_spare
        every = list(cuts(path, examples(64)))
        data, status = path.read_bytes(), path.stat()
        for what, change in every if is_needed else every[:-1]:
            keeping_times(path, change)
            one = verified(folder, names[0])
            assert one.is_broken, f"{path.name} {what}"
            assert one.problems
            path.write_bytes(data)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@both
def test_the_newest_complete_one_is_loaded_and_the_damaged_one_kept(
    tmp_path: Path, case, names
) -> None:
    folder = unpacked(case[0], tmp_path) / case[1]
    path = state_files(folder, names[0])[-1]
    os.truncate(path, path.stat().st_size // 2)
    damaged = data_of(files_of(folder, names[0]))

    found = guarded(folder)

    assert found.choice.outcome is ResumeOutcome.RESUME
    assert found.choice.resume is not None
    assert found.choice.resume.name == names[1]
    moved = [Path(where) for where in found.moved.values()]
    assert [data_of(files_of(where.parent, where.name)) for where in moved] == [damaged]
    assert files_of(folder, names[0]) == []
    after = guarded(folder)
    assert after.before.loaded is not None
    assert (after.before.loaded.name, after.has_changes) == (names[1], False)


def tensors(path: Path, index: Index) -> list[object]:
    """What torch would read of a file: the records of its archives."""
    data = path.read_bytes()
    slices = index.files.get(path.name)
    parts = [data[one.offset : one.offset + one.length] for one in slices] if slices else [data]
    found: list[object] = []
    for part in parts:
        try:
            with zipfile.ZipFile(io.BytesIO(part)) as archive:
                for info in archive.infolist():
                    info.CRC = None  # type: ignore[assignment] - read as torch reads
                found += [(info.filename, archive.read(info)) for info in archive.infolist()]
        except (zipfile.BadZipFile, NotImplementedError, OSError, RuntimeError):
            return ["cannot be read"]
    return found


with_sums = pytest.mark.parametrize(
    ("case", "names"),
    [
        (case, names)
        for case, names in CASES.items()
        if case not in (("torch_save", "legacy"), ("dlrover_agents", "fsdp"))
    ],
    ids="-".join,
)


@with_sums
def test_a_flipped_bit_in_a_tensor_is_seen_by_its_checksum(tmp_path: Path, case, names) -> None:
    folder = unpacked(case[0], tmp_path) / case[1]
    newest = folder / names[0]
    index = read_index(newest, listed(newest)) if newest.is_dir() else None
    index = index if isinstance(index, Index) else Index()
    for path in state_files(folder, names[0]):
        if path.suffix not in SUMMED:
            continue
        before, size = tensors(path, index), path.stat().st_size
        for at in range(0, size, max(1, size // examples(24))):
            keeping_times(path, lambda path=path, at=at: flip(path, at))
            state = verified(folder, names[0], Depth.HASHES).state
            is_seen = state is CheckpointState.DAMAGED
            assert is_seen or tensors(path, index) == before, f"{path.name} at {at}"
            keeping_times(path, lambda path=path, at=at: flip(path, at))
        assert verified(folder, names[0], Depth.HASHES).state is CheckpointState.COMPLETE


def alone(recording: str, form: str, folder: Path) -> Path:
    """The first checkpoint of a recording, without the others."""
    path = unpacked(recording, folder) / form
    for other in sorted(path.iterdir())[1:]:
        other.unlink()
    return next(path.iterdir())


@pytest.mark.parametrize("form", ["zip", "legacy"])
def test_the_first_file_of_torch_save_is_incomplete_only_where_it_is_cut_off(
    tmp_path: Path, form
) -> None:
    path = alone("torch_save", form, tmp_path)
    whole, size = path.read_bytes(), path.stat().st_size
    places = {*range(10, 80), *range(100, size, max(1, size // 150)), *range(size - 120, size)}
    for at in sorted(places):
        flip(path, at)
        for depth in Depth:
            assert verified(path.parent, path.name, depth).state is not CheckpointState.INCOMPLETE
        path.write_bytes(whole)
    for at in (0, 8, *([12, size // 2] if form == "zip" else []), size - 22, size - 1):
        path.with_name("checkpoint_000200.pt").write_bytes(whole)  # the format is recognized by it
        os.truncate(path, at)
        assert verified(path.parent, path.name).state is CheckpointState.INCOMPLETE, at
        path.write_bytes(whole)


def test_a_job_does_not_start_over_for_a_first_checkpoint_with_a_flipped_bit(
    tmp_path: Path,
) -> None:
    path = alone("torch_save", "zip", tmp_path)
    flip(path, path.stat().st_size // 2)
    before = content(path.parent)

    found = guarded(path.parent, Depth.HASHES)

    assert found.before.checkpoints[0].state is CheckpointState.DAMAGED
    assert found.choice.outcome is ResumeOutcome.NONE_COMPLETE
    assert content(path.parent) == before


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_file_that_is_not_of_the_format_is_damaged(tmp_path: Path, suffix) -> None:
    folder = unpacked("hf_trainer", tmp_path) / "one_file"
    path = next((folder / "checkpoint-6").glob(f"*{suffix}"))
    path.write_bytes(b"\x01\x02junk" * 1000)

    one = verified(folder, "checkpoint-6")

    assert one.state is CheckpointState.DAMAGED
    assert f"{path.name} is no" in one.problems[0]


def test_the_header_of_safetensors_is_incomplete_only_where_it_is_cut_off(tmp_path: Path) -> None:
    folder = unpacked("hf_trainer", tmp_path) / "one_file"
    path = folder / "checkpoint-6/model.safetensors"
    whole = path.read_bytes()
    for at in range(9):
        flip(path, at)
        assert verified(folder, "checkpoint-6").state is CheckpointState.DAMAGED, at
        path.write_bytes(whole)
    for size in (0, 4, 8, 20, len(whole) // 2, len(whole) - 1):
        os.truncate(path, size)
        assert verified(folder, "checkpoint-6").state is CheckpointState.INCOMPLETE, size
        path.write_bytes(whole)


@with_sums
def test_a_block_of_zeros_is_seen_by_its_checksum(tmp_path: Path, case, names) -> None:
    folder = unpacked(case[0], tmp_path) / case[1]
    for path in state_files(folder, names[0]):
        if path.suffix in SUMMED:
            whole, status = path.read_bytes(), path.stat()
            for at in (0, path.stat().st_size // 2, path.stat().st_size - 512):
                keeping_times(path, lambda path=path, at=at: zero(path, max(0, at), 512))
                one = verified(folder, names[0], Depth.HASHES)
                assert one.is_broken, f"{path.name} at {at}"
                path.write_bytes(whole)
                os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize(
    ("case", "names"),
    [(case, names) for case, names in CASES.items() if case[0] not in OTHER_CUTS],
    ids="-".join,
)
def test_a_save_that_was_cut_off_before_its_end_is_not_loaded(tmp_path: Path, case, names) -> None:
    """A newer directory with a part of the files, and nothing that names it.

    Orbax renames a directory at its end: a save that was cut off has another name. The files of
    NVRx are in the directories of ranks, see ``test_nvrx_local.py``.
    """
    folder = unpacked(case[0], tmp_path) / case[1]
    newest = folder / names[0]
    before = content(folder)
    parts = state_files(folder, names[0])
    for count in range(len(parts)):
        late = folder / re.sub(r"\d(?=\D*$)", "9", names[0])
        for path in [one for one in parts if not one.name.endswith("metadata")][:count]:
            target = late / path.relative_to(newest)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
        late.mkdir(exist_ok=True)

        found = guarded(folder)

        assert found.choice.resume is not None
        assert found.choice.resume.name == names[0]
        assert content(folder) == before or count == 0
        shutil.rmtree(late, ignore_errors=True)


def test_a_shard_of_another_step_is_seen_by_its_time(tmp_path: Path) -> None:
    for case in (("dcp", "sync"), ("megatron", "torch_dist"), ("megatron_0_19", "torch_dist")):
        folder = unpacked(case[0], tmp_path / "-".join(case)) / case[1]
        newest, before = CASES[case]
        shard = folder / newest / "__1_0.distcp"
        shutil.copy(folder / before / "__1_0.distcp", shard)
        later = (folder / newest / ".metadata").stat().st_mtime + 90
        os.utime(shard, (later, later))

        one = verified(folder, newest, Depth.HASHES)

        assert one.state is CheckpointState.DAMAGED
        assert "a later save here was interrupted" in one.problems[0]


def test_a_copy_whose_files_are_all_newer_than_the_index_is_complete(tmp_path: Path) -> None:
    folder = unpacked("dcp", tmp_path) / "sync"
    for path in (folder / "step_3").glob("*.distcp"):
        later = path.stat().st_mtime + 3600
        os.utime(path, (later, later))

    assert verified(folder, "step_3").state is CheckpointState.COMPLETE


def test_a_lost_rename_of_the_index_is_a_save_that_did_not_end(tmp_path: Path) -> None:
    folder = unpacked("dcp", tmp_path) / "sync"
    (folder / "step_3/.metadata").rename(folder / "step_3/.metadata.tmp")

    assert verified(folder, "step_3").state is CheckpointState.INCOMPLETE
