"""Checkpoints of Megatron are verified before a job resumes from them."""

import hashlib
import io
import json
import os
import pickle
import shutil
import zipfile
from pathlib import Path

import pytest
from recorded import content, guarded, states, unpacked, verified

from holdfast.adapters.checkpoints.attempt_claim import ATTEMPT_FILE, ZombieAttempt, claim
from holdfast.adapters.checkpoints.directory import ASIDE, latest_step
from holdfast.adapters.checkpoints.megatron import BRIDGE_TRACKER, TRACKER
from holdfast.apps.main import run
from holdfast.decisions.checkpoint_choice import ResumeOutcome
from holdfast.model.checkpoints import CheckpointState, Depth


def saved(folder: Path, number: int, *, ranks: int = 2, named: bool = True) -> Path:
    """A checkpoint of tensor-parallel ranks, as PyTorch's zip files."""
    path = folder / f"iter_{number:07d}"
    for rank in range(ranks):
        (path / f"mp_rank_{rank:02d}").mkdir(parents=True)
        (path / f"mp_rank_{rank:02d}/model_optim_rng.pt").write_bytes(tensors(number))
    if named:
        (folder / TRACKER).write_text(str(number), encoding="utf-8")
    return path


def tensors(number: int) -> bytes:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps({"step": number}, protocol=2))
    return memory.getvalue()


def cut(path: Path) -> None:
    os.truncate(path / "mp_rank_01/model_optim_rng.pt", 100)


def aside(folder: Path) -> list[str]:
    home = folder.with_name(folder.name + ASIDE)
    return sorted(path.name for path in home.iterdir()) if home.is_dir() else []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "save"
    path.mkdir()
    return path


def test_a_job_that_never_saved_starts_from_the_beginning(tmp_path: Path) -> None:
    assert guarded(tmp_path).choice.outcome is ResumeOutcome.EMPTY
    assert guarded(tmp_path / "not-there").choice.outcome is ResumeOutcome.MISSING


def test_the_first_save_that_was_cut_off_is_moved_away(folder: Path) -> None:
    cut(saved(folder, 100, named=False))

    assert guarded(folder).choice.outcome is ResumeOutcome.START_OVER

    assert list(folder.iterdir()) == []
    assert aside(folder) == ["iter_0000100"]


def test_a_first_save_that_looks_complete_is_left_alone(folder: Path) -> None:
    saved(folder, 100, named=False)
    before = content(folder)

    assert guarded(folder).choice.outcome is ResumeOutcome.START_OVER
    assert content(folder) == before


def test_without_a_tracker_the_last_save_that_ended_for_certain_is_loaded(folder: Path) -> None:
    for number in (100, 200, 300):
        saved(folder, number, named=False)

    found = guarded(folder)

    assert found.choice.resume is not None
    assert found.choice.resume.step == latest_step(folder) == 200
    assert (folder / "iter_0000300").is_dir()


@pytest.mark.parametrize("recording", ["megatron", "megatron_0_19"])
@pytest.mark.parametrize("kind", ["torch_dist", "torch_dcp"])
def test_without_a_tracker_what_has_its_last_file_is_loaded(
    tmp_path: Path, recording: str, kind: str
) -> None:
    folder = unpacked(recording, tmp_path) / kind
    (folder / TRACKER).unlink()

    guarded(folder)

    assert latest_step(folder) == 300


@pytest.mark.parametrize("text", ["", "2", "abc", "²", "9" * 40, "300"])
def test_an_empty_or_garbled_tracker_is_written_anew(folder: Path, text: str) -> None:
    saved(folder, 2)
    saved(folder, 200)
    (folder / TRACKER).write_text(text, encoding="utf-8")

    guarded(folder)

    assert latest_step(folder) == (2 if text == "2" else 200)
    assert {path.name for path in folder.iterdir()} == {TRACKER, "iter_0000002", "iter_0000200"}


def test_a_complete_one_that_is_newer_than_the_tracker_is_neither_loaded_nor_moved(
    folder: Path,
) -> None:
    """Somebody has set the tracker back, or the save ended and the process before the tracker."""
    saved(folder, 100)
    saved(folder, 200, named=False)
    before = content(folder)

    found = guarded(folder)

    assert found.choice.resume is not None
    assert found.choice.resume.step == 100
    assert content(folder) == before


def test_saves_that_were_cut_off_are_all_kept(folder: Path) -> None:
    saved(folder, 100)
    cut(saved(folder, 200, named=False))
    guarded(folder)
    cut(saved(folder, 200, named=False))
    guarded(folder)

    assert {path.name for path in folder.iterdir()} == {TRACKER, "iter_0000100"}
    assert aside(folder) == ["iter_0000200", "iter_0000200.2"]


def empty(path: Path) -> None:
    os.truncate(path / "mp_rank_00/model_optim_rng.pt", 0)


def without_a_rank(path: Path) -> None:
    shutil.rmtree(path / "mp_rank_00")


def without_tensors(path: Path) -> None:
    (path / "mp_rank_01/model_optim_rng.pt").unlink()


def gone(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere")


def a_pipe(path: Path) -> None:
    without_tensors(path)
    os.mkfifo(path / "mp_rank_01/model_optim_rng.pt")


def a_device(path: Path) -> None:
    without_tensors(path)
    (path / "mp_rank_01/model_optim_rng.pt").symlink_to("/dev/zero")


def a_stale_link(path: Path) -> None:
    without_tensors(path)
    (path / "mp_rank_01/model_optim_rng.pt").symlink_to("nothing")


@pytest.mark.parametrize(
    "harm", [cut, empty, without_a_rank, without_tensors, gone, a_pipe, a_device, a_stale_link]
)
def test_the_tracker_is_set_back_to_the_newest_complete_one(folder: Path, harm) -> None:
    saved(folder, 100)
    saved(folder, 200)
    harm(saved(folder, 300))

    found = guarded(folder)

    assert found.choice.repoint
    assert latest_step(folder) == 200
    assert (folder / TRACKER).read_text() == "200"
    assert set(states(folder).values()) == {"complete"}


def test_where_nothing_is_complete_nothing_is_changed(folder: Path) -> None:
    cut(saved(folder, 100))
    before = content(folder)

    assert guarded(folder).choice.outcome is ResumeOutcome.NONE_COMPLETE
    assert content(folder) == before
    assert aside(folder) == []


def test_a_release_is_loaded_as_it_is(folder: Path) -> None:
    saved(folder, 100)
    (folder / TRACKER).write_text("release", encoding="utf-8")
    before = content(folder)

    assert not guarded(folder).has_changes
    assert content(folder) == before


@pytest.mark.parametrize(("recording", "is_needed"), [("megatron", True), ("megatron_0_19", False)])
def test_common_pt_is_needed_where_the_index_does_not_hold_it(
    tmp_path: Path, recording: str, is_needed: bool
) -> None:
    newest = unpacked(recording, tmp_path) / "torch_dist/iter_0000300"
    assert (newest / "common.pt").exists() is is_needed
    (newest / "common.pt").unlink(missing_ok=True)

    one = verified(newest.parent, newest.name)

    assert one.problems == (("common.pt is missing",) if is_needed else ())


def test_a_save_of_torch_dist_that_ended_before_metadata_json_did_not_end(tmp_path: Path) -> None:
    for recording in ("megatron", "megatron_0_19"):
        newest = unpacked(recording, tmp_path / recording) / "torch_dist/iter_0000300"
        (newest / "metadata.json").unlink()

        assert verified(newest.parent, newest.name).state is CheckpointState.INCOMPLETE


def test_a_backend_that_is_not_known_is_left_alone(tmp_path: Path) -> None:
    newest = unpacked("megatron", tmp_path) / "torch_dist/iter_0000300"
    (newest / "metadata.json").write_text('{"sharded_backend": "zarr"}')
    before = content(newest.parent)

    assert guarded(newest.parent).choice.outcome is ResumeOutcome.UNDECIDED
    assert content(newest.parent) == before


def test_the_sums_of_integrity_json_are_compared(tmp_path: Path) -> None:
    newest = unpacked("megatron", tmp_path) / "torch_dist/iter_0000300"
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in newest.iterdir()}
    (newest / "integrity.json").write_text(json.dumps({"algorithm": "sha256", "files": files}))
    assert verified(newest.parent, newest.name, Depth.HASHES).state is CheckpointState.COMPLETE

    (newest / "metadata.json").write_text((newest / "metadata.json").read_text() + " ")
    one = verified(newest.parent, newest.name, Depth.HASHES)

    assert one.problems == ("the SHA-256 of metadata.json does not match integrity.json",)


def test_megatron_bridge_is_set_back_by_its_own_tracker(folder: Path) -> None:
    states = {number: tensors(number) for number in (100, 200)}
    for number, state in states.items():
        path = saved(folder, number)
        (path / "run_config.yaml").touch()
        (path / "train_state.pt").write_bytes(state)
    shutil.copy(path / "train_state.pt", folder / BRIDGE_TRACKER)
    (folder / TRACKER).write_text("100")
    assert latest_step(folder) == 200
    (path / "train_state.pt").unlink()

    guarded(folder)

    assert (latest_step(folder), (folder / TRACKER).read_text()) == (100, "100")
    assert (folder / BRIDGE_TRACKER).read_bytes() == states[100]


def loaded_by_megatron(folder: Path) -> str:
    """What ``_load_base_checkpoint`` of megatron-core 0.19.2 loads."""
    trackers = [one / TRACKER for one in (folder / "non_persistent", folder)]
    frequent, own = (int(one.read_text()) if one.exists() else -1 for one in trackers)
    if frequent != -1 and frequent >= own:
        return f"non_persistent/iter_{frequent:07d}"
    return f"iter_{own:07d}" if own != -1 else ""


@pytest.mark.parametrize("frequent", [(50, 150), (50, 250), (200,), (50,)])
@pytest.mark.parametrize("own", [(100, 200), ()])
def test_saves_that_are_not_persistent_are_chosen_and_passed_over_as_others(
    folder: Path, own: tuple[int, ...], frequent: tuple[int, ...]
) -> None:
    for number in own:
        saved(folder, number)
    for number in frequent:
        saved(folder / "non_persistent", number)
    loaded = []
    while True:
        found = guarded(folder)
        assert found.choice.resume is not None
        loaded.append(found.choice.resume.name)
        assert loaded[-1] == loaded_by_megatron(folder)
        before = content(folder)
        assert not guarded(folder).has_changes
        assert content(folder) == before
        if len(loaded) == len(own) + len(frequent):
            break
        cut(folder / loaded[-1])

    steps = [int(name[-7:]) for name in loaded]
    assert steps == sorted((*own, *frequent), reverse=True)


@pytest.mark.parametrize("garbled", ["", "non_persistent"])
def test_a_garbled_tracker_of_either_directory_is_replaced(folder: Path, garbled: str) -> None:
    saved(folder, 100)
    saved(folder / "non_persistent", 200)
    (folder / garbled / TRACKER).write_text("\0")

    found = guarded(folder)

    assert found.choice.resume is not None
    assert found.choice.resume.name == loaded_by_megatron(folder)


def test_the_step_of_a_job_is_read_from_plain_files_only(tmp_path: Path) -> None:
    assert latest_step(tmp_path) is None
    os.mkfifo(tmp_path / TRACKER)
    assert latest_step(tmp_path) is None
    (tmp_path / TRACKER).unlink()
    (tmp_path / TRACKER).symlink_to("/dev/zero")
    assert latest_step(tmp_path) is None


def test_an_attempt_ends_where_a_later_one_has_begun(tmp_path: Path) -> None:
    folder = tmp_path / "ckpt"
    claim(folder, 1)
    claim(folder, 2)
    claim(folder, 2)

    with pytest.raises(ZombieAttempt, match="attempt 2 of this job"):
        claim(folder, 1)
    (tmp_path / f".ckpt{ATTEMPT_FILE}").write_text("", encoding="utf-8")
    claim(folder, 1)


def test_an_attempt_that_an_earlier_release_recorded_in_the_directory_counts(folder: Path) -> None:
    (folder / ATTEMPT_FILE).write_text("2", encoding="utf-8")

    with pytest.raises(ZombieAttempt, match="attempt 2 of this job"):
        claim(folder, 1)


def test_attempts_of_different_jobs_are_not_compared(folder: Path, monkeypatch) -> None:
    path = folder.with_name(f".{folder.name}{ATTEMPT_FILE}")
    claim(folder, 2000, "42")
    with pytest.raises(ZombieAttempt):
        claim(folder, 1000, "42")
    with pytest.raises(ZombieAttempt):
        claim(folder, 1000)

    monkeypatch.setenv("SLURM_JOB_ID", "43")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    saved(folder, 100)
    assert run(["checkpoint", "verify", str(folder)]) == 0

    assert path.read_text(encoding="utf-8") == "1000 43"
    with pytest.raises(ZombieAttempt, match="attempt 1000 of this job"):
        claim(folder, 999, "43")
    claim(folder, 1000, "43")
