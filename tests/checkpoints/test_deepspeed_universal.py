"""Steps of the optimizer in universal checkpoints of DeepSpeed."""

import shutil
from pathlib import Path

import pytest
from recorded import unpacked, verified

from holdfast.model.checkpoints import CheckpointState


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return unpacked("deepspeed_universal", tmp_path) / "universal"


def step_of(folder: Path, number: int, name: str) -> Path:
    return folder / f"global_step{number}_universal/zero/{name}/step.pt"


@pytest.mark.parametrize("name", ["bias", "weight"])
def test_a_step_of_another_save_is_damage(folder: Path, name: str) -> None:
    shutil.copy2(step_of(folder, 2, name), step_of(folder, 3, name))

    one = verified(folder, "global_step3_universal")

    assert one.state is CheckpointState.DAMAGED
    [text] = one.problems
    assert text.endswith("/step.pt holds another step than the others")


def test_groups_of_parameters_may_have_made_different_numbers_of_steps(folder: Path) -> None:
    shutil.copy2(step_of(folder, 1, "bias"), step_of(folder, 2, "bias"))
    shutil.copy2(step_of(folder, 2, "weight"), step_of(folder, 3, "bias"))

    assert verified(folder, "global_step3_universal").state is CheckpointState.COMPLETE
