"""Formats of single frameworks: Ray, NeMo 2, NeuronX, Composer, DLRover, and patterns of users.

Those without a recording are built of recorded files in the layout of the framework's source.
"""

import json
import os
import re
import shutil
import zipfile
from pathlib import Path

import pytest
from recorded import content, guarded, states, unpacked, verified

from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.decisions.checkpoint_choice import ResumeOutcome
from holdfast.engine.checkpoint_guard import guard
from holdfast.model.checkpoints import CheckpointState, Depth
from holdfast.model.errors import BackendError, ConfigError

SNAPSHOT = "checkpoint_manager_snapshot.json"
RAY = [f"checkpoint_2026-11-23_12-0{minute}-00.000000" for minute in (1, 2, 3)]


def halve(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def chosen(folder: Path) -> str | None:
    one = guarded(folder).choice.resume
    return one.name if one is not None else None


def aged(folder: Path) -> Path:
    """The files of a directory, each older than a minute, in the order of their names."""
    for number, path in enumerate(sorted(folder.rglob("*"))):
        at = 1_700_000_000 + number
        os.utime(path, (at, at), follow_symlinks=False)
    return folder


# Orbax


@pytest.fixture
def orbax(tmp_path: Path) -> Path:
    return unpacked("orbax", tmp_path) / "one_item"


def test_orbax_ignores_a_save_that_was_cut_off(orbax: Path) -> None:
    (orbax / "300").rename(orbax / "300.orbax-checkpoint-tmp")

    found = guarded(orbax)

    assert found.choice.resume is not None
    assert (found.choice.resume.name, found.has_changes) == ("200", False)


def test_an_orbax_directory_without_its_commit_is_incomplete(orbax: Path) -> None:
    config = orbax / "300/_CHECKPOINT_METADATA"
    config.write_text(
        json.dumps({**json.loads(config.read_text()), "commit_timestamp_nsecs": None})
    )
    (orbax / "300/commit_success.txt").unlink(missing_ok=True)

    assert verified(orbax, "300").state is CheckpointState.INCOMPLETE
    assert chosen(orbax) == "200"


@pytest.mark.parametrize("kind", ["manifest.ocdbt", "d"])
def test_a_flipped_bit_in_a_node_of_orbax_is_seen(orbax: Path, kind: str) -> None:
    path = orbax / "300/default" / kind
    path = next(path.iterdir()) if path.is_dir() else path
    whole = path.read_bytes()
    for at in range(4, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        assert verified(orbax, "300", Depth.HASHES).is_broken, at
    path.write_bytes(whole)
    assert verified(orbax, "300", Depth.HASHES).state is CheckpointState.COMPLETE


# Ray Train


@pytest.fixture
def ray(tmp_path: Path) -> Path:
    return unpacked("ray_train", tmp_path) / "run"


def test_ray_is_set_back_by_its_list(ray: Path) -> None:
    assert CheckpointDirectory(ray).survey().format == "ray-train"
    assert set(states(ray, Depth.HASHES).values()) == {"complete"}
    for path in (ray / RAY[2]).iterdir():
        path.unlink()

    assert chosen(ray) == RAY[1]
    snapshot = json.loads((ray / SNAPSHOT).read_text())
    assert [one["checkpoint_dir_name"] for one in snapshot["checkpoint_results"]] == RAY[:2]
    assert snapshot["checkpoint_report_indices"] == [0, 1]
    assert snapshot["latest_checkpoint_result"]["checkpoint_dir_name"] == RAY[1]
    assert not (ray / RAY[2]).exists()


def test_a_directory_that_ray_does_not_list_is_left_alone(ray: Path) -> None:
    shutil.copytree(ray / RAY[2], ray / "checkpoint_2026-11-23_12-04-00.000000")

    found = guarded(ray)

    assert found.choice.resume is not None
    assert found.choice.resume.name == RAY[2]
    assert not found.choice.repoint


@pytest.mark.parametrize("text", ["", "{", "[]", "\x00" * 50])
def test_a_garbled_list_of_ray_is_for_a_person(ray: Path, text: str) -> None:
    (ray / SNAPSHOT).write_text(text)
    before = content(ray)

    with pytest.raises(BackendError, match="cannot be repaired"):
        guarded(ray)

    assert content(ray) == before


def test_without_a_listed_checkpoint_of_ray_nothing_is_changed(ray: Path) -> None:
    (ray / SNAPSHOT).write_text('{"checkpoint_results": 3}')
    before = content(ray)

    assert guarded(ray).choice.outcome is ResumeOutcome.NONE_COMPLETE
    assert content(ray) == before


# NeMo 2


@pytest.fixture
def nemo(tmp_path: Path) -> Path:
    source = unpacked("megatron_0_19", tmp_path / "source") / "torch_dist"
    folder = tmp_path / "nemo"
    for step in (100, 200, 300):
        path = folder / f"llama--val_loss=0.50-step={step}-consumed_samples={step}.0-last"
        shutil.copytree(source / f"iter_{step:07d}", path / "weights")
        (path / "context").mkdir()
        (path / "context/io.json").write_text("{}")
        for each in (path, *path.rglob("*")):
            if each.is_dir():
                os.utime(each, (1_700_000_000 + step, 1_700_000_000 + step))
    return folder


def test_nemo_passes_over_what_is_unfinished(nemo: Path) -> None:
    names = sorted(path.name for path in nemo.iterdir())
    assert CheckpointDirectory(nemo).survey().format == "nemo"
    assert states(nemo, Depth.HASHES) == dict.fromkeys(names[::-1], "complete")
    (nemo / f"{names[2]}-unfinished").touch()

    assert verified(nemo, names[2]).state is CheckpointState.INCOMPLETE
    assert chosen(nemo) == names[1]
    halve(next((nemo / names[1] / "weights").glob("*.distcp")))
    assert chosen(nemo) == names[0]


def named(nemo: Path, step: int) -> str:
    [path] = nemo.glob(f"*step={step}-*.0")
    return path.name


@pytest.fixture(params=["copy", "link"])
def nemo_last(nemo: Path, request: pytest.FixtureRequest) -> Path:
    """As NeMo leaves it by default: several checkpoints, and one ``last`` of the newest step."""
    for path in sorted(nemo.iterdir()):
        path.rename(path.with_name(path.name.removesuffix("-last")))
    newest = nemo / named(nemo, 300)
    last = newest.with_name(f"{newest.name}-last")
    if request.param == "link":
        last.symlink_to(newest.name)
    else:
        shutil.copytree(newest, last)
    return nemo


def loaded_by_nemo(folder: Path) -> str:
    """What ``AutoResume`` of NeMo 2.5 loads: the newest ``*last``, unless it is unfinished."""
    lasts = [one for one in folder.glob("*") if one.is_dir() and one.match("*last")]
    ended = [one for one in lasts if not one.with_name(f"{one.name}-unfinished").exists()]
    if not ended:
        return ""
    return max(ended, key=lambda one: one.lstat().st_mtime).resolve().name


def test_nemo_loads_an_older_checkpoint_although_only_the_newest_is_last(nemo_last: Path) -> None:
    newest = loaded_by_nemo(nemo_last)
    assert chosen(nemo_last) == newest
    assert loaded_by_nemo(nemo_last) == newest
    for step, rest in ((300, 200), (200, 100)):
        for one in nemo_last.glob(f"*step={step}-*"):
            if not one.is_symlink():
                halve(next((one / "weights").glob("*.distcp")))

        assert chosen(nemo_last) == named(nemo_last, rest) == loaded_by_nemo(nemo_last)
        links = [one.name for one in nemo_last.glob("*-holdfast-last")]
        assert links == [f"{named(nemo_last, rest)}-holdfast-last"]
        before = content(nemo_last)
        assert chosen(nemo_last) == named(nemo_last, rest)
        assert content(nemo_last) == before


def test_the_copy_that_nemo_loads_is_replaced_by_the_checkpoint_of_its_step(
    nemo_last: Path,
) -> None:
    last = nemo_last / f"{named(nemo_last, 300)}-last"
    if last.is_symlink():
        return
    halve(next((last / "weights").glob("*.distcp")))

    assert chosen(nemo_last) == named(nemo_last, 300) == loaded_by_nemo(nemo_last)


def test_a_link_of_nemo_has_its_own_time(nemo: Path) -> None:
    oldest = min(path.name for path in nemo.iterdir())
    (nemo / "again-last").symlink_to(oldest)

    assert chosen(nemo) == oldest == loaded_by_nemo(nemo)


def test_names_of_nemo_without_names_of_values_have_a_step(nemo: Path) -> None:
    for path in list(nemo.iterdir()):
        path.rename(path.with_name(re.sub("[a-z_]+=", "", path.name)))

    found = CheckpointDirectory(nemo).survey()
    assert [one.step for one in found.checkpoints] == [300, 200, 100]
    assert (found.pointer.step, found.pointer.name) == (300, found.checkpoints[0].name)


# NeuronX


@pytest.fixture
def neuronx(tmp_path: Path) -> Path:
    source = unpacked("torch_save", tmp_path / "source") / "zip"
    folder = tmp_path / "neuronx"
    for step in (100, 200, 300):
        for part in ("model", "optim"):
            (folder / f"step_{step}" / part).mkdir(parents=True)
            for rank in range(2):
                name = f"{part}/dp_rank_00_tp_rank_{rank:02d}_pp_rank_00.pt"
                shutil.copy(source / f"checkpoint_{step:06d}.pt", folder / f"step_{step}" / name)
        (folder / f"step_{step}/checkpoint").write_text("1")
        (folder / f"step_{step}/done").write_text("1")
    return aged(folder)


def test_neuronx_loads_the_newest_done(neuronx: Path) -> None:
    assert CheckpointDirectory(neuronx).survey().format == "neuronx"
    assert set(states(neuronx, Depth.HASHES).values()) == {"complete"}
    os.utime(neuronx / "step_200/done", (1_700_009_999, 1_700_009_999))
    assert chosen(neuronx) == "step_200"


@pytest.mark.parametrize("lost", ["done", "optim/dp_rank_00_tp_rank_01_pp_rank_00.pt", "model"])
def test_a_part_of_neuronx_that_is_missing_is_seen(neuronx: Path, lost: str) -> None:
    path = neuronx / "step_300" / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()

    assert verified(neuronx, "step_300").state is CheckpointState.INCOMPLETE
    assert chosen(neuronx) == "step_200"


# Composer


def test_composers_link_is_set_back(tmp_path: Path) -> None:
    source = unpacked("torch_save", tmp_path / "source") / "zip"
    folder = tmp_path / "composer"
    folder.mkdir()
    for batch in (100, 200, 300):
        target = folder / f"ep1-ba{batch}-rank0.pt"
        shutil.copy(source / f"checkpoint_{batch:06d}.pt", target)
    (folder / "latest-rank0.pt").symlink_to("ep1-ba300-rank0.pt")
    assert CheckpointDirectory(aged(folder)).survey().format == "composer"
    halve(folder / "ep1-ba300-rank0.pt")

    assert chosen(folder) == "ep1-ba200-rank0.pt"
    assert os.readlink(folder / "latest-rank0.pt") == "ep1-ba200-rank0.pt"


def test_a_stale_link_of_composer_is_set_anew(tmp_path: Path) -> None:
    folder = unpacked("composer", tmp_path) / "files"
    (folder / "ep3-ba12-rank0.pt").unlink()

    assert chosen(folder) == "ep2-ba8-rank0.pt"
    assert os.readlink(folder / "latest-rank0.pt") == "ep2-ba8-rank0.pt"


def test_composers_sharded_directories_are_dcp(tmp_path: Path) -> None:
    folder = unpacked("composer_sharded", tmp_path) / "sharded"
    (folder / "ep3-ba6/.metadata").unlink()

    assert chosen(folder) == "ep2-ba4"
    assert os.readlink(folder / "latest-rank0.pt") == "ep2-ba4"


# DLRover


@pytest.mark.parametrize(
    ("recording", "inside", "newest", "before"),
    [
        ("dlrover_agents", "megatron", 300, 200),
        ("dlrover_agents", "fsdp", 300, 200),
        ("megatron", "torch_dist", 300, 200),
        ("deepspeed", "zero_1", 3, 2),
        ("torch_save", "zip", 300, 200),
    ],
)
def test_both_trackers_of_dlrover_are_set_back(
    tmp_path: Path, recording: str, inside: str, newest: int, before: int
) -> None:
    """Its tracker is added to the last three: DLRover itself did not write them."""
    folder = unpacked(recording, tmp_path) / inside
    (folder / "dlrover_latest.txt").write_text(str(newest))
    survey = CheckpointDirectory(folder).survey()
    assert (survey.format, survey.loaded and survey.loaded.step) == ("dlrover", newest)
    loaded = survey.loaded
    assert loaded is not None
    path = folder / loaded.name
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    halve(next(one for one in files if one.suffix in (".pt", ".distcp")))

    found = guarded(folder)

    assert found.choice.resume is not None
    assert found.choice.resume.step == before
    assert (folder / "dlrover_latest.txt").read_text() == str(before)
    after = CheckpointDirectory(folder).survey()
    assert (after.loaded and after.loaded.step) == before


@pytest.mark.parametrize("text", ["", "x", "3\n4", "9" * 40])
def test_a_garbled_tracker_of_dlrover_is_written_anew(tmp_path: Path, text: str) -> None:
    folder = unpacked("dcp", tmp_path) / "sync"
    (folder / "dlrover_latest.txt").write_text(text)

    assert chosen(folder) == "step_3"
    assert (folder / "dlrover_latest.txt").read_text() == "3"


# Patterns of users


@pytest.fixture
def own(tmp_path: Path) -> Path:
    for step in (1, 2, 10):
        (tmp_path / f"own/run-a_{step}").mkdir(parents=True)
        with zipfile.ZipFile(tmp_path / f"own/run-a_{step}/weights.npz", "w") as archive:
            archive.writestr("w.npy", bytes(100))
        (tmp_path / f"own/run-a_{step}/DONE").touch()
    return aged(tmp_path / "own")


def resumed(folder: Path, pattern: str) -> str | None:
    found = guard(CheckpointDirectory(folder, pattern), Depth.HASHES, quiet_since=None)
    return found.choice.resume.name if found.choice.resume is not None else None


def test_a_pattern_names_checkpoints_and_their_marker(own: Path) -> None:
    assert guarded(own).choice.outcome is ResumeOutcome.UNDECIDED
    assert resumed(own, "pattern:run-*_{step}") == "run-a_10"
    (own / "run-a_10/DONE").unlink()
    assert resumed(own, "pattern:run-*_{step},marker=DONE") == "run-a_2"
    assert (own.parent / "own.set-aside/run-a_10").is_dir()


def test_without_a_marker_files_are_compared_with_the_checkpoint_before(own: Path) -> None:
    (own / "run-a_10/weights.npz").unlink()
    assert resumed(own, "pattern:run-*_{step}") == "run-a_2"


def test_a_marker_may_be_beside_the_checkpoint(tmp_path: Path) -> None:
    for step in (1, 2):
        (tmp_path / f"own/model_{step}.bin").parent.mkdir(exist_ok=True)
        (tmp_path / f"own/model_{step}.bin").write_bytes(b"x" * 10)
    (tmp_path / "own/model_1.bin.ok").touch()

    assert resumed(tmp_path / "own", "pattern:model_{step}.bin,marker={name}.ok") == "model_1.bin"


@pytest.mark.parametrize(
    "text",
    [
        "pattern:", "pattern:x", "pattern:{step}{step}", "pattern:a/{step}", "pattern:****{step}",
        "pattern:{step},marker=", "pattern:{step},marker=..", "pattern:{step},marker=a/b",
        "pattern:{step}" + "x" * 200,
    ],
)  # fmt: skip
def test_a_pattern_that_is_not_valid_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"format 'pattern:.*expected pattern:NAME_\{step\}"):
        CheckpointDirectory(tmp_path, text)
