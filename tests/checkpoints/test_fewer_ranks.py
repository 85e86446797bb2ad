"""The first checkpoint of a job with fewer ranks, and saves that ended before all ranks had."""

import json
import os
import pickle
import re
import shutil
import zipfile
from pathlib import Path

import pytest
from recorded import guarded, unpacked, verified

from holdfast.model.checkpoints import CheckpointState

RAY = [f"checkpoint_2026-11-23_12-0{minute}-00.000000" for minute in (1, 2, 3)]
DEEPSPEED = "bf16_zero_pp_rank_{}_mp_rank_00_optim_states.pt"


def chosen(folder: Path) -> str | None:
    one = guarded(folder).choice.resume
    return one.name if one is not None else None


# Hugging Face Trainer, whose arguments record two ranks


@pytest.fixture
def trainer(tmp_path: Path) -> Path:
    return unpacked("hf_trainer", tmp_path) / "one_file"


def test_the_trainer_may_have_fewer_ranks_than_before(trainer: Path) -> None:
    for rank in (2, 3):
        path = trainer / f"checkpoint-4/rng_state_{rank}.pth"
        shutil.copy(trainer / "checkpoint-4/rng_state_0.pth", path)

    assert chosen(trainer) == "checkpoint-6"


def test_the_trainer_may_have_more_ranks_than_before(trainer: Path) -> None:
    (trainer / "checkpoint-4/rng_state_0.pth").rename(trainer / "checkpoint-4/rng_state.pth")
    (trainer / "checkpoint-4/rng_state_1.pth").unlink()

    assert chosen(trainer) == "checkpoint-6"


def test_a_rank_of_the_trainer_that_had_not_saved_is_missed(trainer: Path) -> None:
    """Rank 0 writes ``trainer_state.json`` without waiting for it."""
    (trainer / "checkpoint-6/rng_state_1.pth").unlink()
    expected = "rng_state_1.pth is missing, and training_args.bin has 2 ranks"
    assert expected in verified(trainer, "checkpoint-6").problems

    shutil.rmtree(trainer / "checkpoint-4")
    one = verified(trainer, "checkpoint-6")
    assert (one.state, one.problems) == (CheckpointState.INCOMPLETE, (expected,))


def test_without_a_record_a_rank_of_the_trainer_is_expected_as_before(trainer: Path) -> None:
    for name in ("checkpoint-4", "checkpoint-6"):
        (trainer / name / "training_args.bin").unlink()
    shutil.copy(trainer / "checkpoint-4/rng_state_0.pth", trainer / "checkpoint-4/rng_state_2.pth")

    [problem] = verified(trainer, "checkpoint-6").problems
    assert problem == "rng_state_2.pth is missing, but checkpoint-4 has it"


def test_a_save_of_the_trainer_without_random_numbers_is_incomplete(trainer: Path) -> None:
    for path in (trainer / "checkpoint-6").glob("rng_state*"):
        path.unlink()

    assert verified(trainer, "checkpoint-6").state is CheckpointState.INCOMPLETE


# DeepSpeed, which records two data parallel ranks


@pytest.mark.parametrize("stage", ["zero_1", "zero_3"])
def test_deepspeed_may_have_fewer_ranks_than_before(tmp_path: Path, stage: str) -> None:
    folder = unpacked("deepspeed", tmp_path) / stage
    for path in (folder / "global_step2").glob("*pp_rank_1_*"):
        shutil.copy(path, path.with_name(path.name.replace("pp_rank_1", "pp_rank_2")))

    assert verified(folder, "global_step3").state is CheckpointState.COMPLETE
    assert chosen(folder) == "global_step3"


def test_a_rank_of_deepspeed_that_had_not_saved_is_missed(tmp_path: Path) -> None:
    folder = unpacked("deepspeed", tmp_path) / "zero_3"
    (folder / "global_step3" / DEEPSPEED.format(1)).unlink()

    assert verified(folder, "global_step3").state is CheckpointState.INCOMPLETE


def test_without_a_record_a_rank_of_deepspeed_is_expected_as_before(tmp_path: Path) -> None:
    folder = unpacked("deepspeed", tmp_path) / "zero_1"
    for name in ("global_step2", "global_step3"):
        model = folder / name / "mp_rank_00_model_states.pt"
        shutil.copy(folder / name / DEEPSPEED.format(0), model)  # has no world size
    (folder / "global_step3" / DEEPSPEED.format(1)).unlink()

    assert verified(folder, "global_step3").state is CheckpointState.INCOMPLETE


# Accelerate, of which a sharded state shows the ranks


def sharded(tmp_path: Path, kind: str, before: int, now: int) -> Path:
    """Accelerate's second and third checkpoint of so many ranks, as far as ``kind`` shows them."""
    folder = unpacked("accelerate", tmp_path) / "checkpoints"
    shards = unpacked("dcp", tmp_path / "source") / "sync/step_3"
    for name, ranks in (("checkpoint_1", before), ("checkpoint_2", now)):
        checkpoint = folder / name
        for rank in range(2, ranks):
            state = checkpoint / f"random_states_{rank}.pkl"
            shutil.copy(checkpoint / "random_states_0.pkl", state)
        if kind == "fsdp":
            state = checkpoint / "pytorch_model_fsdp_0"
            shutil.copytree(shards, state)
            for rank in range(2, ranks):
                shutil.copy2(state / "__1_0.distcp", state / f"__{rank}_0.distcp")
        elif kind == "deepspeed":
            (checkpoint / "pytorch_model").mkdir()
            model = checkpoint / "pytorch_model/mp_rank_00_model_states.pt"
            sizes = {"dp_world_size": ranks, "mp_world_size": 1}
            with zipfile.ZipFile(model, "w") as file:
                file.writestr("archive/data.pkl", pickle.dumps(sizes, protocol=2))
    return folder


@pytest.mark.parametrize("kind", ["fsdp", "deepspeed"])
def test_accelerate_may_have_fewer_ranks_than_before(tmp_path: Path, kind: str) -> None:
    folder = sharded(tmp_path, kind, 4, 2)

    assert chosen(folder) == "checkpoint_2"


@pytest.mark.parametrize("kind", ["fsdp", "deepspeed"])
@pytest.mark.parametrize("now", [3, 4])
def test_a_rank_of_accelerate_that_had_not_saved_is_missed(tmp_path, kind: str, now: int) -> None:
    folder = sharded(tmp_path, kind, 4, now)
    (folder / f"checkpoint_2/random_states_{now - 1}.pkl").unlink()

    assert verified(folder, "checkpoint_2").state is CheckpointState.INCOMPLETE


def test_replicas_of_accelerate_without_shards_are_no_record(tmp_path: Path) -> None:
    """Two of four ranks have shards, and the states of two had been saved."""
    folder = sharded(tmp_path, "fsdp", 2, 2)
    for rank in (2, 3):
        state = folder / "checkpoint_1/random_states_0.pkl"
        shutil.copy(state, state.with_name(f"random_states_{rank}.pkl"))

    assert verified(folder, "checkpoint_2").state is CheckpointState.INCOMPLETE


def test_without_shards_a_rank_of_accelerate_is_expected_as_before(tmp_path: Path) -> None:
    folder = sharded(tmp_path, "", 4, 2)

    assert verified(folder, "checkpoint_2").state is CheckpointState.INCOMPLETE


# Formats in which the framework records that all ranks have saved


def ray(tmp_path: Path, kinds: tuple[str, ...], ranks: int) -> Path:
    """Ray's second checkpoint has files of each kind of four ranks, the third has fewer."""
    folder = unpacked("ray_train", tmp_path) / "run"
    source = (folder / RAY[1] / "weights_0.npz").read_bytes()
    for name, count in ((RAY[1], 4), (RAY[2], ranks)):
        for kind in kinds:
            for rank in range(4):
                path = folder / name / f"{kind}_{rank}.npz"
                path.unlink(missing_ok=True)
                if rank < count:
                    path.write_bytes(source)
    return folder


def neuronx(tmp_path: Path, kinds: tuple[str, ...], ranks: int) -> Path:
    """As ``ray``."""
    source = unpacked("torch_save", tmp_path / "source") / "zip/checkpoint_000100.pt"
    for step, count in ((1, 4), (2, ranks)):
        for kind in kinds:
            folder = tmp_path / f"run/step_{step}/{kind}"
            folder.mkdir(parents=True)
            for rank in range(count):
                name = f"dp_rank_00_tp_rank_{rank:02d}_pp_rank_00.pt"
                shutil.copy(source, folder / name)
        for name in ("checkpoint", "done"):
            (tmp_path / f"run/step_{step}/{name}").write_text("1")
            os.utime(tmp_path / f"run/step_{step}/{name}", (1_700_000_000 + step,) * 2)
    return tmp_path / "run"


builders = pytest.mark.parametrize(
    ("build", "kinds", "newest"),
    [
        (ray, ("weights", "optimizer"), RAY[2]),
        (neuronx, ("model", "optim"), "step_2"),
    ],
)


@builders
def test_what_all_of_fewer_ranks_saved_is_complete(tmp_path, build, kinds, newest) -> None:
    folder = build(tmp_path, kinds, 2)

    assert verified(folder, newest).state is CheckpointState.COMPLETE
    assert chosen(folder) == newest


@builders
def test_a_kind_that_is_one_short_of_another_is_incomplete(tmp_path, build, kinds, newest) -> None:
    folder = build(tmp_path, kinds, 2)
    paths = [one for one in (folder / newest).rglob("*") if re.search(r"_0?1[_.]", one.name)]
    next(one for one in paths if kinds[0] in str(one.relative_to(folder))).unlink()

    assert verified(folder, newest).state is CheckpointState.INCOMPLETE


@builders
def test_a_rank_in_the_middle_that_is_missing_is_incomplete(tmp_path, build, kinds, newest) -> None:
    folder = build(tmp_path, kinds, 3)
    for path in (folder / newest).rglob("*"):
        if re.search(r"_0?1[_.]", path.name):
            path.unlink()

    assert verified(folder, newest).state is CheckpointState.INCOMPLETE


@builders
def test_one_kind_alone_may_have_lost_its_last_rank(tmp_path, build, kinds, newest) -> None:
    folder = build(tmp_path, kinds[:1], 3)

    assert verified(folder, newest).state is CheckpointState.INCOMPLETE


def test_what_is_not_committed_may_lack_its_last_ranks(tmp_path: Path) -> None:
    folder = neuronx(tmp_path / "neuronx", ("model", "optim"), 2)
    (folder / "step_2/done").unlink()
    one = verified(folder, "step_2")
    assert any("are missing, but step_1 has them" in text for text in one.problems)

    folder = ray(tmp_path / "ray", ("weights", "optimizer"), 2)
    path = folder / "checkpoint_manager_snapshot.json"
    snapshot = json.loads(path.read_text())
    snapshot["checkpoint_results"].pop()
    path.write_text(json.dumps(snapshot))
    one = verified(folder, RAY[2])
    assert any(text.endswith(f"but {RAY[1]} has them") for text in one.problems)
