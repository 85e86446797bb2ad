"""NVRx's local checkpoints: one iteration is files in the directories of all ranks."""

import os
import shutil
import zipfile
from pathlib import Path

import pytest
from recorded import content, flip, guarded, keeping_times, states, unpacked, verified

from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.adapters.checkpoints.manifest_check import SAMPLE
from holdfast.adapters.checkpoints.manifests import DirectoryManifests
from holdfast.apps.main import run
from holdfast.apps.run.checkpoint_watch import watch_of
from holdfast.apps.run.copy_restore import mirror_of
from holdfast.decisions.checkpoint_choice import ResumeOutcome
from holdfast.decisions.checkpoint_copies import RetentionPolicy
from holdfast.model.checkpoint_manifests import CheckpointManifest
from holdfast.model.checkpoints import CheckpointState, Depth
from holdfast.model.errors import BackendError

NEWEST, BEFORE = "iter_0000300", "iter_0000200"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return unpacked("nvrx_local", tmp_path)


@pytest.fixture
def alone(root: Path) -> Path:
    return root / "alone"


@pytest.fixture
def replicated(root: Path) -> Path:
    return root / "replicated"


def chosen(folder: Path, depth: Depth = Depth.SIZES) -> str | None:
    one = guarded(folder, depth).choice.resume
    return one.name if one is not None else None


def flip_in_tensor(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        data = archive.read("archive/data/1")
    flip(path, path.read_bytes().index(data) + 3)


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.pt"))


def test_an_iteration_has_the_size_of_the_files_of_all_ranks(alone: Path) -> None:
    files = list(alone.rglob("iter_0000300_*"))

    assert len(files) == 4
    assert verified(alone, NEWEST).size == sum(path.stat().st_size for path in files)


@pytest.mark.parametrize("rank", range(4))
def test_an_iteration_without_the_shard_of_a_rank_is_moved_away(alone: Path, rank: int) -> None:
    (alone / f"{rank}/iter_0000300_{rank}_local.pt").unlink()

    one = verified(alone, NEWEST)
    assert (one.state, one.problems) == (
        CheckpointState.INCOMPLETE,
        (f"the shard of rank {rank} is missing",),
    )
    assert chosen(alone) == BEFORE
    moved = alone.with_name("alone.set-aside") / NEWEST
    others = [other for other in range(4) if other != rank]
    assert names(moved) == [f"{other}/iter_0000300_{other}_local.pt" for other in others]
    assert not list(alone.rglob("iter_0000300*"))
    assert all((alone / str(each)).is_dir() for each in range(4))


def test_what_was_moved_is_released_to_the_directories_of_its_ranks(alone: Path) -> None:
    (alone / "2/iter_0000300_2_local.pt").rename(alone / "lost")
    before = content(alone)
    assert chosen(alone) == BEFORE
    assert content(alone) != before

    assert run(["checkpoint", "release", str(alone), NEWEST]) == 0

    assert content(alone) == before
    assert not (alone.with_name("alone.set-aside") / NEWEST).exists()


def test_nothing_is_released_over_a_file_of_a_later_save(alone: Path) -> None:
    path = alone / "3/iter_0000300_3_local.pt"
    (alone / "2/iter_0000300_2_local.pt").unlink()
    assert chosen(alone) == BEFORE
    path.write_bytes(b"new")
    before = content(alone.parent)

    with pytest.raises(BackendError, match=r"3/iter_0000300_3_local\.pt already exists"):
        CheckpointDirectory(alone).release(alone.with_name("alone.set-aside") / NEWEST, NEWEST)

    assert content(alone.parent) == before


def test_an_iteration_that_is_moved_twice_keeps_both(alone: Path) -> None:
    for _ in range(2):
        shutil.copy(alone / "0/iter_0000200_0_local.pt", alone / "0/iter_0000300_0_local.pt")
        (alone / "2/iter_0000300_2_local.pt").unlink(missing_ok=True)
        assert chosen(alone) == BEFORE

    moved = sorted(path.name for path in alone.with_name("alone.set-aside").iterdir())
    assert moved == [NEWEST, f"{NEWEST}.2"]


def test_a_replica_covers_a_lost_directory(replicated: Path) -> None:
    for path in (replicated / "1").iterdir():
        path.unlink()

    assert set(states(replicated, Depth.HASHES).values()) == {"complete"}
    assert chosen(replicated) == NEWEST
    (replicated / "3/iter_0000300_1_local.pt").unlink()
    assert verified(replicated, NEWEST).problems == ("the shard of rank 1 is missing",)
    assert chosen(replicated) == BEFORE


def test_a_replica_is_named_that_is_whole(replicated: Path) -> None:
    path = replicated / "1/iter_0000300_1_local.pt"
    flip_in_tensor(path)

    one = verified(replicated, NEWEST, Depth.HASHES)
    assert one.state is CheckpointState.DAMAGED
    assert one.problems[0].startswith("1/iter_0000300_1_local.pt has a wrong checksum")
    assert "3/iter_0000300_1_local.pt is a whole replica" in one.problems[0]
    path.unlink()
    assert verified(replicated, NEWEST, Depth.HASHES).state is CheckpointState.COMPLETE


def test_a_damaged_replica_is_not_named(replicated: Path) -> None:
    for holder in (1, 3):
        path = replicated / f"{holder}/iter_0000300_1_local.pt"
        flip_in_tensor(path)

    assert not any("replica" in text for text in verified(replicated, NEWEST).problems)
    problems = verified(replicated, NEWEST, Depth.HASHES).problems
    assert len(problems) == 2
    assert not any("replica" in text for text in problems)


def test_a_save_that_was_cut_off_is_moved_with_its_dirty_files(alone: Path) -> None:
    """NVRx opens the dirty file exclusively: the next save of the iteration would fail."""
    for rank in range(3):
        shutil.copy(
            alone / f"{rank}/iter_0000300_{rank}_local.pt",
            alone / f"{rank}/iter_0000400_{rank}_local{'.dirty' if rank else ''}.pt",
        )

    assert verified(alone, "iter_0000400").problems[0] == (
        "the shard of rank 1 is missing; its save did not get beyond"
        " 1/iter_0000400_1_local.dirty.pt"
    )
    assert chosen(alone) == NEWEST
    assert not list(alone.rglob("*400*"))
    assert not list(alone.rglob("*.dirty.pt"))


def test_a_dirty_file_of_a_covered_iteration_is_left_alone(replicated: Path) -> None:
    path = replicated / "3/iter_0000300_1_local.pt"
    path.rename(path.with_name("iter_0000300_1_local.dirty.pt"))
    before = content(replicated)

    assert chosen(replicated) == NEWEST
    assert content(replicated) == before


@pytest.mark.parametrize("here", [(2, 3), (1, 3)])
def test_files_of_other_nodes_are_not_judged(alone: Path, here: tuple[int, ...]) -> None:
    for rank in range(4):
        if rank not in here:
            shutil.rmtree(alone / str(rank))
    before = content(alone)

    found = guarded(alone)

    assert found.choice.outcome is ResumeOutcome.UNDECIDED
    assert "those of other nodes are not here" in found.before.checkpoints[0].problems[0]
    assert content(alone) == before


def test_the_directory_of_a_rank_that_was_lost_is_seen_by_the_iteration_before(alone: Path) -> None:
    shutil.rmtree(alone / "3")
    shutil.copy(alone / "2/iter_0000200_2_local.pt", alone / "2/iter_0000200_3_local.pt")

    assert verified(alone, NEWEST).problems == ("the shard of rank 3 is missing",)
    assert chosen(alone) == BEFORE


def test_a_cut_off_file_under_its_final_name_is_seen(alone: Path) -> None:
    """A rename may reach the storage before the content does."""
    path = alone / "1/iter_0000300_1_local.pt"
    os.truncate(path, path.stat().st_size // 2)

    assert verified(alone, NEWEST).is_broken
    assert chosen(alone) == BEFORE


def test_other_entries_are_no_ranks(alone: Path) -> None:
    (alone / "007").mkdir()
    (alone / "9").write_text("x")
    (alone / "logs").mkdir()
    (alone / "1/iter_0000900_1_local.pt.tmp").touch()
    (alone / "1/iter_0000901_1_local.pt").mkdir()

    assert set(states(alone, Depth.HASHES).values()) == {"complete"}
    assert chosen(alone) == NEWEST


def test_an_invented_rank_costs_no_time_for_those_before_it(alone: Path) -> None:
    (alone / "999999999").mkdir()

    found = guarded(alone)

    assert found.choice.outcome is ResumeOutcome.UNDECIDED
    assert "no files of rank 4: those of other nodes" in found.before.checkpoints[0].problems[0]


def test_what_cannot_be_copied_says_so(alone: Path, tmp_path: Path) -> None:
    done = mirror_of(alone, str(tmp_path / "copies")).run_once(RetentionPolicy(keep=2))

    assert done.copied == ()
    assert "files in several directories, which cannot be copied" in done.skipped[0][1]


def watched(folder: Path) -> dict[str, CheckpointManifest]:
    watch = watch_of(folder, None)
    return {one.name: one for one in iter(lambda: watch.run_once().verified, None)}


def test_the_watch_records_the_files_of_all_ranks(replicated: Path) -> None:
    files = sorted(path.relative_to(replicated).as_posix() for path in replicated.rglob("*300_*"))

    manifest = watched(replicated)[NEWEST]

    assert [file.path for file in manifest.files] == files
    assert manifest.is_good
    store = CheckpointDirectory(replicated, sample=SAMPLE)
    store.survey()
    assert store.verify(NEWEST, Depth.SIZES, None).compared == len(files)


def test_damage_after_the_watch_is_found_by_the_manifest(alone: Path) -> None:
    watched(alone)
    path = alone / "2/iter_0000300_2_local.pt"
    keeping_times(path, lambda: flip_in_tensor(path))

    one = verified(alone, NEWEST, Depth.HASHES)
    assert "2/iter_0000300_2_local.pt: SHA-256 differs from the manifest" in one.problems
    assert chosen(alone, Depth.HASHES) == BEFORE


@pytest.mark.parametrize("rank", range(4))
def test_a_file_of_the_manifest_may_be_missing_if_it_has_a_replica(
    replicated: Path, rank: int
) -> None:
    watched(replicated)
    (replicated / f"{rank}/iter_0000300_{rank}_local.pt").unlink()

    for depth in Depth:
        assert verified(replicated, NEWEST, depth).state is CheckpointState.COMPLETE
        assert chosen(replicated, depth) == NEWEST
    assert len(watched(replicated)[NEWEST].files) == 7


def test_a_damaged_file_that_came_after_the_watch_is_found(replicated: Path) -> None:
    path = replicated / "3/iter_0000300_1_local.pt"
    path.rename(replicated / "kept")
    watched(replicated)
    (replicated / "kept").rename(path)
    keeping_times(path, lambda: flip_in_tensor(path))

    assert verified(replicated, NEWEST, Depth.HASHES).is_broken


def test_manifests_of_deleted_iterations_are_deleted(alone: Path) -> None:
    """NVRx deletes an iteration once the next one is saved."""
    watch = watch_of(alone, None)
    while watch.run_once().verified is not None:
        pass
    for path in alone.rglob("*200_*"):
        path.unlink()

    watch.run_once()

    assert DirectoryManifests(alone).names() == {NEWEST, "iter_0000100"}


def test_an_iteration_that_was_moved_keeps_its_manifest(alone: Path) -> None:
    watched(alone)
    store = CheckpointDirectory(alone)
    store.survey()
    store.apply(None, [NEWEST])
    assert not list(alone.rglob("*300_*"))
    assert watched(alone) == {}
    assert run(["checkpoint", "release", str(alone), NEWEST]) == 0

    assert verified(alone, NEWEST).watched_at is not None


def test_nan_in_a_shard_is_found_by_the_watch(alone: Path) -> None:
    torch = pytest.importorskip("torch")
    path = alone / "1/iter_0000300_1_local.pt"
    nan = torch.full((4,), float("nan"))
    keeping_times(path, lambda: torch.save({"weight": nan}, path))

    manifest = watched(alone)[NEWEST]

    assert manifest.weights.nan == ("1/iter_0000300_1_local.pt: weight",)
    assert verified(alone, NEWEST).nan


def test_the_watch_of_a_node_without_the_first_ranks_changes_no_verdict(alone: Path) -> None:
    for rank in (0, 1):
        shutil.rmtree(alone / str(rank))
    before = content(alone)

    watched(alone)

    assert set(states(alone, Depth.HASHES).values()) == {"unknown"}
    assert guarded(alone).choice.outcome is ResumeOutcome.UNDECIDED
    assert content(alone) == before
