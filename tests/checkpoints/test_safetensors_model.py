"""Checkpoints that the real safetensors package writes, without a framework."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from recorded import cuts, guarded, keeping_times, states, unpacked

from holdfast.decisions.checkpoint_choice import ResumeOutcome
from holdfast.model.checkpoints import CheckpointState

pytestmark = pytest.mark.frameworks
PARTS = [f"model-{number:05d}-of-00003.safetensors" for number in (1, 2, 3)]


def save(path: Path, step: int) -> None:
    numpy = pytest.importorskip("numpy")
    package = pytest.importorskip("safetensors.numpy")
    path.parent.mkdir(parents=True, exist_ok=True)
    package.save_file({path.name: numpy.full((8, 8), step, dtype="float32")}, path)
    at = time.time() - 3600 + step
    os.utime(path, (at, at))


def sharded(folder: Path, *, has_index: bool = True) -> Path:
    for step in (100, 200):
        for name in PARTS:
            save(folder / f"step_{step}" / name, step)
        if has_index:
            index = {"metadata": {}, "weight_map": {name: name for name in PARTS}}
            path = folder / f"step_{step}" / "model.safetensors.index.json"
            path.write_text(json.dumps(index))
            os.utime(path, (time.time() - 1800,) * 2)
        os.utime(folder / f"step_{step}", (time.time() - 1800,) * 2)
    return folder


def test_files_are_checkpoints_by_their_number(tmp_path: Path) -> None:
    for step in (100, 200, 1000):
        save(tmp_path / "run" / f"model_{step}.safetensors", step)
    assert set(states(tmp_path / "run").values()) == {"complete"}
    found = guarded(tmp_path / "run")
    assert found.before.format == "safetensors"
    assert found.choice.resume is not None
    assert (found.choice.resume.name, found.choice.resume.step) == ("model_1000.safetensors", 1000)


@pytest.mark.parametrize("number", range(5))
def test_a_file_that_is_cut_off_is_passed_over(tmp_path: Path, number: int) -> None:
    for step in (100, 200):
        save(tmp_path / "run" / f"model_{step}.safetensors", step)
    path = tmp_path / "run/model_200.safetensors"
    change = list(cuts(path))[number][1]
    keeping_times(path, change)

    found = guarded(tmp_path / "run")

    assert found.choice.resume is not None
    assert found.choice.resume.name == "model_100.safetensors"


@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("name", PARTS)
def test_a_model_without_one_of_its_files_is_passed_over(
    tmp_path: Path, name: str, has_index: bool
) -> None:
    folder = sharded(tmp_path / "run", has_index=has_index)
    assert set(states(folder).values()) == {"complete"}
    (folder / "step_200" / name).unlink()

    found = guarded(folder)

    assert found.before.checkpoints[0].is_broken
    assert found.choice.resume is not None
    assert found.choice.resume.name == "step_100"


def test_a_directory_that_is_a_model_itself_is_one_checkpoint(tmp_path: Path) -> None:
    save(tmp_path / "run" / "model.safetensors", 1)
    found = guarded(tmp_path / "run")
    assert found.choice.resume is not None
    assert found.choice.resume.name == "."
    keeping_times(
        tmp_path / "run/model.safetensors",
        lambda: os.truncate(tmp_path / "run/model.safetensors", 100),
    )
    found = guarded(tmp_path / "run")
    assert found.choice.outcome is ResumeOutcome.NONE_COMPLETE
    assert found.before.checkpoints[0].state is CheckpointState.INCOMPLETE


@pytest.mark.parametrize("kept", [("model.safetensors",), ("model.safetensors", "optimizer.bin")])
@pytest.mark.parametrize("inside", ["", "checkpoints"])
def test_the_first_save_of_accelerate_that_was_cut_off_is_no_model(
    tmp_path: Path, kept: tuple[str, ...], inside: str
) -> None:
    project = unpacked("accelerate", tmp_path / "project")
    for number in (1, 2):
        shutil.rmtree(project / f"checkpoints/checkpoint_{number}")
    for path in (project / "checkpoints/checkpoint_0").iterdir():
        if path.name not in kept:
            path.unlink()

    found = guarded(project / inside)

    assert found.before.format == "accelerate"
    assert found.choice.outcome is ResumeOutcome.START_OVER
    assert not any((project / "checkpoints").iterdir())


@pytest.mark.parametrize("steps", [(1,), (0, 100)])
def test_models_in_directories_named_like_those_of_accelerate_are_complete(
    tmp_path: Path, steps: tuple[int, ...]
) -> None:
    folder = tmp_path / "checkpoints"
    for step in steps:
        save(folder / f"checkpoint_{step}" / "model.safetensors", step)

    assert guarded(folder).before.format == "safetensors"
    assert set(states(folder).values()) == {"complete"}
