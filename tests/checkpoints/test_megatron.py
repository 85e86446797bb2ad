"""Checkpoints in Megatron's layout are verified before a job goes on from them."""

import io
import json
import os
import pickle
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.adapters.checkpoints.megatron import (
    EPOCH,
    TRACKER,
    ZombieAttempt,
    claim,
    examine,
    iteration,
    repair,
)
from holdfast.apps.main import run
from holdfast.model.errors import BackendError


def saved(folder: Path, number: int, *, ranks: int = 2, named: bool = True) -> Path:
    """A checkpoint of tensor-parallel ranks, as PyTorch's zip files."""
    path = folder / f"iter_{number:07d}"
    for rank in range(ranks):
        (path / f"mp_rank_{rank:02d}").mkdir(parents=True)
        (path / f"mp_rank_{rank:02d}/model_optim_rng.pt").write_bytes(tensors(number))
    if named:
        (folder / TRACKER).write_text(str(number), encoding="utf-8")
    return path


def saved_distributed(folder: Path, number: int) -> Path:
    path = folder / f"iter_{number:07d}"
    path.mkdir()
    shards = [f"__{rank}_0.distcp" for rank in range(3)]
    for shard in shards:
        (path / shard).write_bytes(b"tensors")
    (path / ".metadata").write_bytes(pickle.dumps({"storage": shards}))
    (path / "metadata.json").write_text("{}", encoding="utf-8")
    (path / "common.pt").write_bytes(tensors(number))
    (folder / TRACKER).write_text(str(number), encoding="utf-8")
    return path


def tensors(number: int) -> bytes:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as file:
        file.writestr("archive/data.pkl", f"step {number}" * 20)
    return memory.getvalue()


def content(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def test_a_job_that_never_saved_begins_anew(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "not-there"):
        found = examine(folder)
        assert (found.newest, found.aside, found.is_set_back) == (None, (), False)


def test_the_first_save_that_was_cut_off_is_put_aside(tmp_path: Path) -> None:
    saved(tmp_path, 100, named=False)

    repair(examine(tmp_path))

    assert [path.name for path in tmp_path.iterdir()] == ["iter_0000100.incomplete"]


def test_a_tracker_that_is_gone_names_what_ended_for_sure(tmp_path: Path) -> None:
    for number in (100, 200, 300):
        saved(tmp_path, number, named=False)

    found = examine(tmp_path)

    assert (found.newest, [path.name for path in found.aside]) == (200, ["iter_0000300"])


def test_what_is_complete_stays_as_it_is(tmp_path: Path) -> None:
    saved(tmp_path, 100)
    saved_distributed(tmp_path, 200)
    before = content(tmp_path)

    found = examine(tmp_path)
    repair(found)

    assert (found.newest, found.problems) == (200, {})
    assert content(tmp_path) == before


def test_a_save_that_was_cut_off_is_put_aside_and_kept(tmp_path: Path) -> None:
    saved(tmp_path, 100)
    late = saved(tmp_path, 200, named=False)

    repair(examine(tmp_path))
    late.mkdir()
    repair(examine(tmp_path))

    assert {path.name for path in tmp_path.iterdir()} == {
        TRACKER, "iter_0000100", "iter_0000200.incomplete", "iter_0000200.incomplete-2",
    }  # fmt: skip
    assert iteration(tmp_path) == 100


def cut(path: Path) -> None:
    os.truncate(path / "mp_rank_01/model_optim_rng.pt", 100)


def empty(path: Path) -> None:
    os.truncate(path / "mp_rank_00/model_optim_rng.pt", 0)


def without_a_rank(path: Path) -> None:
    (path / "mp_rank_00/model_optim_rng.pt").unlink()
    (path / "mp_rank_00").rmdir()


def without_tensors(path: Path) -> None:
    (path / "mp_rank_01/model_optim_rng.pt").unlink()


def gone(path: Path) -> None:
    path.rename(path.parent / "elsewhere")


@pytest.mark.parametrize("harm", [cut, empty, without_a_rank, without_tensors, gone])
def test_the_tracker_is_set_back_to_the_newest_complete_one(tmp_path: Path, harm) -> None:
    saved(tmp_path, 100)
    saved(tmp_path, 200)
    harm(saved(tmp_path, 300))

    found = examine(tmp_path)
    repair(found)

    assert (found.newest, found.is_set_back, [*found.problems]) == (200, True, [300])
    assert iteration(tmp_path) == 200
    assert examine(tmp_path).problems == {}


@pytest.mark.parametrize(
    ("name", "harm"),
    [
        ("__1_0.distcp", Path.unlink),
        ("__2_0.distcp", lambda path: os.truncate(path, 0)),
        (".metadata", Path.unlink),
        (".metadata", lambda path: os.truncate(path, path.stat().st_size - 3)),
        ("common.pt", Path.unlink),
        ("metadata.json", lambda path: os.truncate(path, 0)),
    ],
)
def test_a_distributed_checkpoint_needs_all_of_its_parts(tmp_path: Path, name: str, harm) -> None:
    saved_distributed(tmp_path, 100)
    harm(saved_distributed(tmp_path, 200) / name)

    found = examine(tmp_path)

    assert (found.newest, [*found.problems]) == (100, [200])


@pytest.mark.parametrize("text", ["", "2", "abc", "²"])
def test_a_tracker_that_was_cut_off_is_written_anew(tmp_path: Path, text: str) -> None:
    saved(tmp_path, 2)
    saved(tmp_path, 200)
    (tmp_path / TRACKER).write_text(text, encoding="utf-8")

    repair(examine(tmp_path))

    assert iteration(tmp_path) == (2 if text == "2" else 200)


def test_where_nothing_is_complete_nothing_is_changed(tmp_path: Path) -> None:
    cut(saved(tmp_path, 100))
    before = content(tmp_path)

    with pytest.raises(BackendError, match=r"mp_rank_01/model_optim_rng.pt is cut off"):
        examine(tmp_path)
    assert content(tmp_path) == before


def test_a_release_is_loaded_as_it_is(tmp_path: Path) -> None:
    saved(tmp_path, 100)
    (tmp_path / TRACKER).write_text("release", encoding="utf-8")

    found = examine(tmp_path)

    assert (found.newest, found.aside) == (None, ())


@settings(max_examples=50)
@given(st.integers(0, 400), st.sampled_from([2, 4]))
def test_no_cut_off_file_passes(length: int, ranks: int) -> None:
    from tempfile import TemporaryDirectory  # noqa: PLC0415 - one for each example

    with TemporaryDirectory() as name:
        saved(Path(name), 100)
        path = saved(Path(name), 200, ranks=ranks) / "mp_rank_01/model_optim_rng.pt"
        whole = path.stat().st_size
        os.truncate(path, min(length, whole))

        assert examine(Path(name)).newest == (200 if length >= whole else 100)


def test_the_step_of_a_job_is_read_from_plain_files_only(tmp_path: Path) -> None:
    assert iteration(tmp_path) is None
    os.mkfifo(tmp_path / TRACKER)
    assert iteration(tmp_path) is None
    (tmp_path / TRACKER).unlink()
    (tmp_path / TRACKER).symlink_to("/dev/zero")
    assert iteration(tmp_path) is None


def test_an_attempt_ends_where_a_later_one_has_begun(tmp_path: Path) -> None:
    claim(tmp_path, 1)
    claim(tmp_path, 2)
    claim(tmp_path, 2)

    with pytest.raises(ZombieAttempt, match="attempt 2 of this job"):
        claim(tmp_path, 1)
    (tmp_path / EPOCH).write_text("", encoding="utf-8")
    claim(tmp_path, 1)


def test_attempts_of_different_jobs_are_not_compared(tmp_path: Path, monkeypatch) -> None:
    claim(tmp_path, 2000, "42")
    with pytest.raises(ZombieAttempt):
        claim(tmp_path, 1000, "42")
    with pytest.raises(ZombieAttempt):
        claim(tmp_path, 1000)

    monkeypatch.setenv("SLURM_JOB_ID", "43")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    saved(tmp_path, 100)
    assert run(["checkpoint", "verify", str(tmp_path)]) == 0

    assert (tmp_path / EPOCH).read_text(encoding="utf-8") == "1000 43"
    with pytest.raises(ZombieAttempt, match="attempt 1000 of this job"):
        claim(tmp_path, 999, "43")
    claim(tmp_path, 1000, "43")


def test_the_command_tells_and_does_it(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("HOLDFAST_ATTEMPT", "3")
    saved(tmp_path, 100)
    cut(saved(tmp_path, 200))
    before = content(tmp_path)

    assert run(["checkpoint", "verify", str(tmp_path), "--dry-run", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["iteration"], told["set_back"], told["aside"]) == (100, True, ["iter_0000200"])
    assert content(tmp_path) == before

    assert run(["checkpoint", "verify", str(tmp_path)]) == 0
    assert "set back from '200' to iteration 100" in capsys.readouterr().out
    assert iteration(tmp_path) == 100
    monkeypatch.setenv("HOLDFAST_ATTEMPT", "2")
    assert run(["checkpoint", "verify", str(tmp_path)]) == 1
    assert "attempt 3 of this job works with" in capsys.readouterr().err
