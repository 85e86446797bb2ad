"""What is particular to one format: how it is recognized, what is loaded, how it is rolled back."""

import json
import os
import shutil
import tempfile
import zipfile
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest
from recorded import content, guarded, states, unpacked, verified

from holdfast.adapters import checkpoints
from holdfast.adapters.checkpoints.attempt_claim import ATTEMPT_FILE
from holdfast.adapters.checkpoints.directory import CheckpointDirectory, latest_step
from holdfast.adapters.checkpoints.table import ROWS
from holdfast.apps.main import run
from holdfast.decisions.checkpoint_choice import ResumeOutcome
from holdfast.model.checkpoints import CheckpointState, Depth
from holdfast.model.errors import BackendError
from tools.checkpoint_damage import HANDMADE, RECORDINGS


def halve(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def chosen(folder: Path) -> str | None:
    one = guarded(folder).choice.resume
    return one.name if one is not None else None


MORE_RECORDINGS = {
    "dcp/sync/step_2": "dcp",
    "lightning/files": "lightning",
    "orbax/items": "orbax",
    "accelerate/": "accelerate",
}
"""Directories in recordings that have no damage table, with their format."""


def test_every_format_has_a_row_and_recordings() -> None:
    modules = (import_module(f"{checkpoints.__name__}.{one.name}")
               for one in iter_modules(checkpoints.__path__))  # fmt: skip
    formats = {one.FORMAT.name for one in modules if hasattr(one, "FORMAT")}

    without_row = formats - {row.name for row in ROWS}
    assert without_row == set(), "add to ROWS in adapters/checkpoints/table.py"
    recorded = {one.format for one in RECORDINGS.values()}
    without_recording = formats - recorded - HANDMADE.keys()
    assert without_recording == set(), "record, and add to RECORDINGS in tools/checkpoint_damage.py"
    assert not recorded & HANDMADE.keys()


@pytest.mark.parametrize(
    ("recording", "format_name"),
    [*((name, one.format) for name, one in RECORDINGS.items()), *MORE_RECORDINGS.items()],
)
def test_formats_are_recognized_by_content(
    tmp_path: Path, recording: str, format_name: str
) -> None:
    name, _, inside = recording.partition("/")
    folder = unpacked(name, tmp_path) / inside

    survey = CheckpointDirectory(folder).survey()

    assert survey.format == format_name
    assert latest_step(folder) == survey.checkpoints[0].step
    assert set(states(folder, Depth.HASHES).values()) == {"complete"}


@pytest.mark.parametrize("recording", RECORDINGS)
def test_the_newest_checkpoint_of_a_recording_comes_first(tmp_path: Path, recording: str) -> None:
    name, _, inside = recording.partition("/")
    survey = CheckpointDirectory(unpacked(name, tmp_path) / inside).survey()

    names = [one.name for one in survey.checkpoints[:2]]
    assert names == [RECORDINGS[recording].newest, RECORDINGS[recording].before]


def test_a_format_that_is_named_is_taken(tmp_path: Path) -> None:
    folder = unpacked("lightning", tmp_path) / "sharded"

    assert CheckpointDirectory(folder, "dcp").survey().format == "dcp"
    assert CheckpointDirectory(folder, "megatron").survey().format == ""


# DCP


@pytest.mark.parametrize("file", [None, ".metadata.tmp"])
def test_a_directory_in_which_a_save_has_only_begun_is_moved_away(tmp_path: Path, file) -> None:
    folder = unpacked("dcp", tmp_path) / "sync"
    for name in ("step_4", "logs_4"):
        (folder / name).mkdir()
        if file is not None:
            (folder / name / file).touch()

    assert chosen(folder) == "step_3"
    assert sorted(path.name for path in folder.iterdir()) == [
        "logs_4",
        "step_1",
        "step_2",
        "step_3",
    ]


# torch.save


def test_a_link_is_set_to_the_newest_complete_file(tmp_path: Path) -> None:
    folder = unpacked("torch_save", tmp_path) / "zip"
    halve(folder / "checkpoint_000300.pt")

    assert chosen(folder) == "checkpoint_000200.pt"
    assert os.readlink(folder / "latest.pt") == "checkpoint_000200.pt"
    assert (folder.parent / "zip.set-aside/checkpoint_000300.pt").is_file()


def test_a_stale_link_is_set_anew(tmp_path: Path) -> None:
    folder = unpacked("torch_save", tmp_path) / "zip"
    (folder / "checkpoint_000300.pt").unlink()

    assert chosen(folder) == "checkpoint_000200.pt"
    assert os.readlink(folder / "latest.pt") == "checkpoint_000200.pt"


def test_a_link_that_somebody_has_set_back_is_obeyed(tmp_path: Path) -> None:
    folder = unpacked("torch_save", tmp_path) / "zip"
    (folder / "latest.pt").unlink()
    (folder / "latest.pt").symlink_to("checkpoint_000100.pt")
    before = content(folder)

    assert chosen(folder) == "checkpoint_000100.pt"
    assert content(folder) == before


@pytest.mark.parametrize("others", [True, False])
def test_a_file_that_is_loaded_by_its_name_is_never_moved(tmp_path: Path, others: bool) -> None:
    """Without it the script would start from the beginning."""
    folder = unpacked("torch_save", tmp_path) / "zip"
    (folder / "latest.pt").unlink()
    shutil.copy(folder / "checkpoint_000300.pt", folder / "latest.pt")
    assert chosen(folder) == "latest.pt"
    if not others:
        for path in folder.glob("checkpoint_*"):
            path.unlink()
    halve(folder / "latest.pt")
    before = content(folder)

    outcome = guarded(folder).choice.outcome

    assert outcome is (ResumeOutcome.UNDECIDED if others else ResumeOutcome.NONE_COMPLETE)
    assert content(folder) == before


def test_a_storage_that_the_archive_lacks_is_seen(tmp_path: Path) -> None:
    """As after a save that failed: torch ends the archive properly all the same."""
    folder = unpacked("torch_save", tmp_path) / "zip"
    path = folder / "checkpoint_000300.pt"
    with zipfile.ZipFile(path) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in records.items():
            if not name.endswith("data/1"):
                archive.writestr(name, data)

    assert verified(folder, path.name).problems == ("has no record data/1",)


def test_files_without_checksums_are_no_false_alarm(tmp_path: Path) -> None:
    folder = unpacked("torch_save", tmp_path) / "no_sums"

    assert set(states(folder, Depth.HASHES).values()) == {"complete"}


def test_several_files_of_one_step_are_not_taken_apart(tmp_path: Path) -> None:
    folder = unpacked("torch_save", tmp_path) / "zip"
    (folder / "latest.pt").unlink()
    shutil.copy(folder / "checkpoint_000300.pt", folder / "optimizer_000300.pt")

    assert guarded(folder).choice.outcome is ResumeOutcome.UNDECIDED


# Lightning


def test_lightning_loads_hpc_checkpoints_first_then_last(tmp_path: Path) -> None:
    folder = unpacked("lightning", tmp_path) / "files"
    assert chosen(folder) == "last.ckpt"

    for number in (2, 10):
        shutil.copy(folder / "last.ckpt", folder / f"hpc_ckpt_{number}.ckpt")
    assert chosen(folder) == "hpc_ckpt_10.ckpt"

    halve(folder / "hpc_ckpt_10.ckpt")
    assert chosen(folder) == "hpc_ckpt_2.ckpt"
    halve(folder / "hpc_ckpt_2.ckpt")
    before = content(folder)
    assert guarded(folder).choice.outcome is ResumeOutcome.UNDECIDED
    assert content(folder) == before


def test_lightnings_last_as_a_link_is_set_to_the_newest_complete_file(tmp_path: Path) -> None:
    folder = unpacked("lightning", tmp_path) / "files"
    (folder / "last.ckpt").unlink()
    (folder / "last.ckpt").symlink_to("epoch=1-step=6.ckpt")
    halve(folder / "epoch=1-step=6.ckpt")

    assert chosen(folder) == "epoch=0-step=4.ckpt"
    assert os.readlink(folder / "last.ckpt") == "epoch=0-step=4.ckpt"


# Hugging Face


@pytest.mark.parametrize("kind", ["one_file", "sharded"])
def test_the_sentinel_that_transformers_does_not_look_for_is_seen(tmp_path: Path, kind) -> None:
    folder = unpacked("hf_trainer", tmp_path) / kind
    (folder / "checkpoint-6/checkpoint-is-incomplete.txt").touch()

    assert verified(folder, "checkpoint-6").state is CheckpointState.INCOMPLETE
    assert chosen(folder) == "checkpoint-4"


def test_a_state_of_another_step_is_damage(tmp_path: Path) -> None:
    folder = unpacked("hf_trainer", tmp_path) / "one_file"
    shutil.copy(folder / "checkpoint-4/trainer_state.json", folder / "checkpoint-6")

    one = verified(folder, "checkpoint-6")

    assert (one.state, one.problems) == (
        CheckpointState.DAMAGED,
        ("trainer_state.json has global_step 4",),
    )


def test_a_tensor_that_the_index_names_has_to_be_there(tmp_path: Path) -> None:
    folder = unpacked("hf_trainer", tmp_path) / "sharded"
    path = folder / "checkpoint-6/model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["missing.weight"] = "model-00001-of-00002.safetensors"
    path.write_text(json.dumps(index))

    one = verified(folder, "checkpoint-6")

    assert one.problems == ("model-00001-of-00002.safetensors has no tensor missing.weight",)


@pytest.mark.parametrize(
    ("within", "lost"),
    [
        (("deepspeed", "zero_3/global_step3"), "zero_pp_rank_1_mp_rank_00_model_states.pt"),
        (("dcp", "sync/step_3"), "__1_0.distcp"),
    ],
)
def test_what_deepspeed_or_fsdp_wrote_in_a_checkpoint_is_verified(
    tmp_path: Path, within: tuple[str, str], lost: str
) -> None:
    """The Trainer keeps DeepSpeed's ``global_stepN`` and FSDP's ``optimizer_0`` in its own."""
    folder = unpacked("hf_trainer", tmp_path / "hf") / "one_file"
    inner = folder / "checkpoint-6/global_step6"
    shutil.copytree(unpacked(within[0], tmp_path / "inner") / within[1], inner)
    assert verified(folder, "checkpoint-6", Depth.HASHES).state is CheckpointState.COMPLETE

    (inner / lost).unlink()

    one = verified(folder, "checkpoint-6")
    assert one.is_broken
    assert one.problems[0].startswith(("global_step6/", "1 of 2"))


def test_nothing_is_put_where_accelerate_looks(tmp_path: Path, monkeypatch) -> None:
    folder = unpacked("accelerate", tmp_path / "project")
    halve(folder / "checkpoints/checkpoint_2/optimizer.bin")
    store = CheckpointDirectory(folder / "checkpoints")
    store.survey()

    assert chosen(folder) == "checkpoints/checkpoint_1"
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == [
        "checkpoint_0", "checkpoint_1",
    ]  # fmt: skip
    assert (tmp_path / "project.set-aside/checkpoints/checkpoint_2").is_dir()
    for strict in (folder / "checkpoints", tmp_path / "empty"):
        strict.mkdir(exist_ok=True)
        before = sorted(strict.iterdir())
        assert run(["checkpoint", "verify", str(strict), "--attempt", "1"]) == 0
        assert sorted(strict.iterdir()) == before
        assert strict.with_name(f".{strict.name}{ATTEMPT_FILE}").is_file()


def test_what_was_moved_from_a_subdirectory_is_released_into_it(tmp_path: Path) -> None:
    folder = unpacked("accelerate", tmp_path / "project")
    halve(folder / "checkpoints/checkpoint_2/optimizer.bin")
    assert chosen(folder) == "checkpoints/checkpoint_1"

    assert run(["checkpoint", "release", str(folder), "checkpoints/checkpoint_2"]) == 0

    assert (folder / "checkpoints/checkpoint_2").is_dir()


# DeepSpeed


@pytest.mark.parametrize("text", ["", "global_step9", "\0\0\0\0", "global_step3/../x"])
def test_an_empty_or_garbled_latest_is_written_anew(tmp_path: Path, text: str) -> None:
    folder = unpacked("deepspeed", tmp_path) / "zero_1"
    (folder / "latest").write_text(text)

    assert chosen(folder) == "global_step3"
    assert (folder / "latest").read_text() == "global_step3"


def test_latest_that_was_written_before_another_rank_ended_is_set_back(tmp_path: Path) -> None:
    for stage in ("zero_1", "zero_3"):
        folder = unpacked("deepspeed", tmp_path / stage) / stage
        name = "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"
        (folder / "global_step3" / name).unlink()

        assert chosen(folder) == "global_step2"
        assert (folder / "latest").read_text() == "global_step2"


def test_a_rank_without_its_files_is_seen_in_the_first_checkpoint_too(tmp_path: Path) -> None:
    for stage, kind in (("zero_1", "optim"), ("zero_3", "model"), ("zero_3", "optim")):
        folder = unpacked("deepspeed", tmp_path / f"{stage}-{kind}") / stage
        for name in ("global_step1", "global_step2"):
            shutil.rmtree(folder / name)
        for path in (folder / "global_step3").glob(f"*rank_1_*_{kind}_states.pt"):
            path.unlink()

        one = verified(folder, "global_step3")

        assert one.state is CheckpointState.INCOMPLETE
        assert one.problems[0].startswith("1 of 2 files ")
        for path in (folder / "global_step3").glob(f"*_{kind}_states.pt"):
            path.unlink()
        assert verified(folder, "global_step3").state is CheckpointState.INCOMPLETE


# torchtitan


@pytest.fixture
def titan(tmp_path: Path) -> Path:
    return (unpacked("torchtitan", tmp_path) / "disabled").rename(tmp_path / "titan")


def test_torchtitan_is_rolled_back_by_moving_away_what_it_would_take(titan: Path) -> None:
    assert CheckpointDirectory(titan).survey().format == "torchtitan"
    (titan / "step-6").rename(titan / "step-6.incomplete")  # which torchtitan takes for step 6
    halve(titan / "step-6.incomplete/__1_0.distcp")

    assert chosen(titan) == "step-4"
    assert sorted(path.name for path in titan.iterdir()) == ["step-2", "step-4"]


def test_where_nothing_can_be_moved_the_checkpoint_stays(titan: Path) -> None:
    (titan.parent / "titan.set-aside").touch()
    halve(titan / "step-6/__1_0.distcp")

    with pytest.raises(BackendError, match="cannot be repaired"):
        guarded(titan)

    assert (titan / "step-6").is_dir()


def test_what_cannot_be_moved_to_another_file_system_is_moved_within(titan: Path) -> None:
    """As where a volume is mounted at the directory of checkpoints."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        assert Path(elsewhere).stat().st_dev != titan.stat().st_dev
        (titan.parent / "titan.set-aside").symlink_to(elsewhere)
        halve(titan / "step-6/__1_0.distcp")

        assert chosen(titan) == "step-4"
        assert (titan / ".holdfast-set-aside/step-6").is_dir()
        assert chosen(titan) == "step-4"
