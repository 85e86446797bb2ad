"""Checkpoints of DLRover without a framework: directories of a step with a file of each rank."""

import shutil
from pathlib import Path

import pytest
from recorded import flip, guarded, keeping_times, states, unpacked, verified

from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.model.checkpoints import CheckpointState, Depth


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return unpacked("dlrover", tmp_path) / "ddp"


def add_ranks(folder: Path, step: int, ranks: int) -> None:
    for rank in range(1, ranks):
        shutil.copy2(folder / f"{step}/rank_0.pt", folder / f"{step}/rank_{rank}.pt")


def test_the_stage_of_dlrover_is_no_checkpoint(folder: Path) -> None:
    assert (folder / "._dlrover_ckpt_stage").is_dir()
    survey = CheckpointDirectory(folder).survey()

    assert [one.name for one in survey.checkpoints] == ["300", "200", "100"]
    assert survey.loaded is not None
    assert (survey.format, survey.loaded.name) == ("dlrover", "300")


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_checkpoint_without_the_file_of_a_rank_is_passed_over(folder: Path, lost: int) -> None:
    add_ranks(folder, 200, 3)
    add_ranks(folder, 300, 3)
    (folder / f"300/rank_{lost}.pt").unlink()

    found = guarded(folder)

    assert found.choice.resume is not None
    assert found.choice.resume.name == "200"
    assert (folder / "dlrover_latest.txt").read_text() == "200"
    assert f"rank_{lost}.pt" in (found.before.checkpoints[0].problems)[0]


def test_a_save_that_has_only_started_is_incomplete(folder: Path) -> None:
    (folder / "400").mkdir()

    assert states(folder) == {
        "400": "incomplete", "300": "complete", "200": "complete", "100": "complete",
    }  # fmt: skip
    assert guarded(folder).choice.resume is not None
    assert verified(folder, "300").problems == ()


def test_a_flipped_bit_outside_of_the_tensors_of_fsdp_is_noticed(tmp_path: Path) -> None:
    """DLRover writes tensors as bytes, and other items, such as the step, with ``torch.save``."""
    folder = unpacked("dlrover_agents", tmp_path) / "fsdp"
    path = folder / "300/__0_0.distcp"
    whole = path.read_bytes()
    data = whole.rindex(b"data.pkl", 0, whole.rindex(b"PK\x01\x02")) + 80
    keeping_times(path, lambda: flip(path, data))

    one = verified(folder, "300", Depth.HASHES)
    assert one.state is CheckpointState.DAMAGED
    assert "tensor step at offset" in one.problems[0]


def test_directories_of_other_content_are_no_checkpoints(folder: Path) -> None:
    (folder / "500").mkdir()
    (folder / "500/notes.txt").write_text("x")
    (folder / "600").write_text("x")

    names = [one.name for one in CheckpointDirectory(folder).survey().checkpoints]
    assert names == ["300", "200", "100"]
