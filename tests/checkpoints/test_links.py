"""Links by which a script finds its newest checkpoint, beside other links."""

import os
import shutil
from pathlib import Path

import pytest
from recorded import content, guarded, unpacked

from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.decisions.checkpoint_choice import ResumeOutcome
from holdfast.model.checkpoints import PointerKind

NEWEST, BEFORE, FIRST = (f"checkpoint_{step:06d}.pt" for step in (300, 200, 100))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """``latest.pt`` is a link to the newest file, which is cut off."""
    own = unpacked("torch_save", tmp_path) / "zip"
    os.truncate(own / NEWEST, 1000)
    return own


def link(folder: Path, name: str, target: str | Path) -> None:
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(target)


def chosen(folder: Path) -> str | None:
    one = guarded(folder).choice.resume
    return one.name if one is not None else None


def test_a_link_to_the_best_checkpoint_is_not_that_to_the_newest(folder: Path) -> None:
    link(folder, "checkpoint-best.pt", FIRST)

    assert CheckpointDirectory(folder).survey().pointer.file == "latest.pt"
    assert chosen(folder) == BEFORE
    assert os.readlink(folder / "latest.pt") == BEFORE
    assert os.readlink(folder / "checkpoint-best.pt") == FIRST


@pytest.mark.parametrize("name", ["latest-best.pt", "current-best.pt", "latest.log"])
def test_other_links_stay(folder: Path, name: str) -> None:
    (folder / "run.log").write_text("x")
    target = "run.log" if name == "latest.log" else FIRST
    link(folder, name, target)

    assert chosen(folder) == BEFORE
    assert os.readlink(folder / "latest.pt") == BEFORE
    assert os.readlink(folder / name) == target


def test_a_link_to_what_is_moved_away_is_set_anew(folder: Path) -> None:
    link(folder, "latest-best.pt", NEWEST)
    link(folder, "checkpoint-broken.pt", "checkpoint_000400.pt")

    assert chosen(folder) == BEFORE
    for name in ("latest.pt", "latest-best.pt", "checkpoint-broken.pt"):
        assert os.readlink(folder / name) == BEFORE


def test_links_of_all_ranks_are_set_to_the_same_checkpoint(folder: Path) -> None:
    (folder / "latest.pt").unlink()
    for rank, target in enumerate((NEWEST, BEFORE, FIRST)):
        link(folder, f"latest-rank{rank}.pt", target)

    assert chosen(folder) == BEFORE
    assert {os.readlink(one) for one in folder.glob("latest-rank*")} == {BEFORE}


@pytest.mark.parametrize("kind", ["absolute", "through a link", "upwards"])
def test_a_link_by_another_path_of_the_directory_is_followed(
    folder: Path, kind: str, monkeypatch
) -> None:
    (folder.parent / "mounted").symlink_to(folder, target_is_directory=True)
    target = {
        "absolute": folder / NEWEST,
        "through a link": folder.parent / "mounted" / NEWEST,
        "upwards": Path("..", folder.name, NEWEST),
    }[kind]
    link(folder, "latest.pt", target)
    monkeypatch.chdir(folder.parent)

    assert chosen(Path(folder.name)) == BEFORE
    assert os.readlink(folder / "latest.pt") == BEFORE


def test_a_link_by_a_path_that_is_not_mounted_here_is_set_anew(folder: Path) -> None:
    link(folder, "latest.pt", Path("/fsx/not-mounted-here", NEWEST))

    assert chosen(folder) == BEFORE
    assert os.readlink(folder / "latest.pt") == BEFORE


def test_a_link_to_another_directory_is_left_alone(folder: Path) -> None:
    other = folder.parent / "other"
    other.mkdir()
    shutil.copy(folder / FIRST, other / BEFORE)
    link(folder, "latest.pt", other / BEFORE)
    before = content(folder)

    assert chosen(folder) == BEFORE
    assert content(folder) == {name: data for name, data in before.items() if name != NEWEST}


# Directories of DCP


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    return unpacked("dcp", tmp_path) / "sync"


def test_the_link_to_a_directory_of_dcp_is_set_back(steps: Path) -> None:
    link(steps, "latest", "step_3")
    link(steps, "checkpoint-best", "step_1")
    assert CheckpointDirectory(steps).survey().pointer.name == "step_3"
    assert chosen(steps) == "step_3"
    (steps / "step_3/.metadata").unlink()

    assert chosen(steps) == "step_2"
    assert os.readlink(steps / "latest") == "step_2"
    assert os.readlink(steps / "checkpoint-best") == "step_1"
    assert (steps.parent / "sync.set-aside/step_3").is_dir()


def test_a_directory_of_dcp_to_which_somebody_has_set_the_link_is_taken(steps: Path) -> None:
    link(steps, "latest", "step_1")
    before = content(steps)

    assert chosen(steps) == "step_1"
    assert content(steps) == before


@pytest.mark.parametrize("others", [True, False])
def test_a_directory_of_dcp_that_is_loaded_by_its_name_is_never_moved(
    steps: Path, others: bool
) -> None:
    """Without it the script would start from the beginning."""
    (steps / "step_3").rename(steps / "latest")
    (steps / "step_2").rename(steps / "best")
    shutil.rmtree(steps / "step_1")
    os.utime(steps / "best", (1_700_000_000,) * 2)
    (steps / "latest/.metadata").unlink()
    if not others:
        shutil.rmtree(steps / "best")
    before = content(steps)

    outcome = guarded(steps).choice.outcome

    assert outcome is (ResumeOutcome.UNDECIDED if others else ResumeOutcome.NONE_COMPLETE)
    assert content(steps) == before


@pytest.mark.parametrize("target", ["run_3.log", "logs", "notes"])
def test_a_broken_link_to_what_was_no_checkpoint_is_not_the_pointer(
    folder: Path, target: str
) -> None:
    name = "latest.log" if target.endswith(".log") else "latest"
    link(folder, name, target)
    assert CheckpointDirectory(folder).survey().pointer.file == "latest.pt"

    (folder / "latest.pt").unlink()
    assert CheckpointDirectory(folder).survey().pointer.kind is PointerKind.NONE
    assert chosen(folder) == BEFORE
    assert os.readlink(folder / name) == target


@pytest.mark.parametrize("target", ["step_4", "step_3.log", "logs"])
def test_a_broken_link_beside_directories_counts_with_a_step_and_no_suffix(
    tmp_path: Path, target: str
) -> None:
    folder = unpacked("dcp", tmp_path) / "sync"
    link(folder, "latest", target)

    is_pointer = CheckpointDirectory(folder).survey().pointer.name == target
    assert is_pointer is (target == "step_4")
