"""A copy that is restored before an attempt: when, which one, and what happens if it fails."""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from recorded import content, unpacked

from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.adapters.checkpoints.files import DirectoryFiles
from holdfast.adapters.checkpoints.history import read_history, write_history
from holdfast.adapters.checkpoints.manifest_check import file_record
from holdfast.adapters.checkpoints.manifests import DirectoryManifests
from holdfast.adapters.checkpoints.plain_files import opened
from holdfast.adapters.copies.table import open_copies
from holdfast.apps.main import run
from holdfast.engine.checkpoint_mirror import CheckpointMirror
from holdfast.model.checkpoint_copies import CheckpointCopy
from holdfast.model.checkpoint_manifests import CheckpointManifest, WeightScan
from holdfast.model.checkpoints import (
    AttemptEnd,
    CheckpointHistory,
    CheckpointState,
    ResumedAttempt,
)
from holdfast.model.errors import BackendError
from holdfast.model.jobs import FailureKind
from holdfast.ports.checkpoint_copies import CopyStore
from tests.ports.fakes import FakeClock

Commands = Callable[..., tuple[int, str]]
NEWEST = [f"checkpoint_000{step}00.pt" for step in (3, 2, 1)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three complete checkpoints of torch.save, an hour apart."""
    unpacked("torch_save", tmp_path / "unpacked")
    folder = tmp_path / "primary"
    shutil.copytree(tmp_path / "unpacked" / "legacy", folder)
    (folder / "latest.pt").unlink()
    for number, path in enumerate(sorted(folder.iterdir())):
        at = time.time() - 4 * 3600 + number * 3600
        os.utime(path, (at, at))
    return folder


@pytest.fixture
def location(tmp_path: Path) -> Path:
    return tmp_path / "copies"


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Commands:
    def call(*argv: object) -> tuple[int, str]:
        code = run(["checkpoint", *map(str, argv)])
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return call


def guard(said: Commands, folder: Path, location: Path | str, attempt: int = 1) -> tuple[int, str]:
    at = ("--rank", 0, "--job", "j", "--attempt", attempt, "--depth", "hashes")
    return said("guard", folder, *at, "--restore-from", location)


def names(folder: Path) -> list[str]:
    return sorted((path.name for path in folder.iterdir()), reverse=True)


class FailingCopies:
    """A location whose connection is lost after the first bytes of each checkpoint."""

    def __init__(self, store: CopyStore) -> None:
        self._store = store
        self.url = store.url
        self.list_keys, self.write, self.delete = store.list_keys, store.write, store.delete

    def read(self, key: str) -> Iterator[bytes]:
        chunks = self._store.read(key)
        if key.endswith("manifest.json"):
            yield from chunks
            return
        yield next(chunks)[:100]
        raise BackendError("connection lost")


def damage(*paths: Path) -> None:
    for path in paths:
        before = path.stat()
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def copies_of(location: Path, name: str) -> Path:
    [file] = location.glob(f"{name}@*/file")
    return file


def has_nan(folder: Path, name: str) -> None:
    """Write the manifest of ``checkpoint watch`` that found NaN in a checkpoint."""
    with opened(folder / name) as window:
        record = file_record(window, "", (folder / name).stat().st_mtime_ns)
    DirectoryManifests(folder).write(
        CheckpointManifest(
            name=name,
            step=None,
            format="torch-save",
            state=CheckpointState.COMPLETE,
            saved_at=datetime.now(UTC),
            verified_at=datetime.now(UTC),
            seconds=0,
            files=(record,),
            weights=WeightScan(nan=("weights: w",)),
        )
    )


def test_nothing_changes_and_no_attempt_starts_if_every_copy_is_damaged(
    folder: Path, location: Path, said: Commands
) -> None:
    assert said("mirror", folder, location, "--once")[0] == 0
    damage(*folder.iterdir(), *location.glob("*/file"))
    before = content(folder)

    code, text = guard(said, folder, location)

    assert code == 1
    assert content(folder) == before
    assert not folder.with_name("primary.set-aside").exists()
    assert text.count("SHA-256 does not match the manifest") == 3
    assert "nothing was restored" in text
    assert "the job waits" in text
    assert read_history(folder).attempts == ()


def test_nothing_changes_if_the_location_fails_half_way(
    folder: Path, location: Path, said: Commands
) -> None:
    assert said("mirror", folder, location, "--once")[0] == 0
    damage(*folder.iterdir())
    before = content(folder)
    store = FailingCopies(open_copies(str(location)))
    mirror = CheckpointMirror(
        CheckpointDirectory(folder), DirectoryFiles(folder), store, FakeClock(datetime.now(UTC))
    )
    moves: list[CheckpointCopy] = []

    with pytest.raises(BackendError, match="connection lost; connection lost; connection lost"):
        mirror.restore(mirror.copies(), moves.append)

    assert (content(folder), moves) == (before, [])


def test_an_unreadable_location_stops_an_attempt_whose_checkpoints_are_lost(
    folder: Path, location: Path, said: Commands
) -> None:
    assert guard(said, folder, location, 1)[0] == 0
    shutil.rmtree(folder)
    location.write_text("no directory")

    code, text = guard(said, folder, location, 2)

    assert code == 1
    assert "the job waits" in text
    assert "starts from the beginning" not in text
    assert not folder.exists()


def test_without_copies_an_attempt_whose_checkpoints_are_lost_does_not_start(
    folder: Path, location: Path, said: Commands
) -> None:
    assert guard(said, folder, location, 1)[0] == 0
    shutil.rmtree(folder)

    code, text = guard(said, folder, location, 2)

    assert code == 1
    assert f"{location} has no complete copy" in text


def test_the_broken_checkpoint_of_the_same_name_is_moved_once_the_copy_is_verified(
    folder: Path, location: Path, said: Commands
) -> None:
    good = (folder / NEWEST[1]).read_bytes()
    assert said("mirror", folder, location, "--once")[0] == 0
    damage(*folder.iterdir(), copies_of(location, NEWEST[0]))

    code, text = guard(said, folder, location)

    assert code == 0, text
    assert names(folder) == [NEWEST[1]]
    assert (folder / NEWEST[1]).read_bytes() == good
    assert names(folder.with_name("primary.set-aside")) == NEWEST
    assert f"{NEWEST[1]} was restored from {location}" in text


def test_the_format_that_a_person_names_is_used_for_the_restore(
    folder: Path, location: Path, said: Commands
) -> None:
    for path in list(folder.iterdir()):
        path.rename(path.with_suffix(".own"))
    form = "pattern:checkpoint_{step}.own"
    assert said("mirror", folder, location, "--once", "--format", form)[0] == 0
    every = names(folder)
    for path in folder.iterdir():
        os.truncate(path, 100)
        os.utime(path, (1_700_000_000,) * 2)
    at = ("--rank", 0, "--job", "j", "--attempt", 1, "--format", form)

    code, text = said("guard", folder, *at, "--restore-from", location)

    assert code == 0, text
    assert names(folder) == every[:1]
    assert f"{every[0]} was restored" in text


def test_checkpoints_with_nan_are_not_copied_and_push_no_good_copy_out(
    folder: Path, location: Path, said: Commands
) -> None:
    assert said("mirror", folder, location, "--once", "--keep", 2)[0] == 0
    for number, name in enumerate(("checkpoint_000400.pt", "checkpoint_000500.pt")):
        shutil.copy(folder / NEWEST[0], folder / name)
        at = time.time() - 600 + number
        os.utime(folder / name, (at, at))
        has_nan(folder, name)

    code, text = said("mirror", folder, location, "--once", "--keep", 2)

    assert code == 1
    assert "checkpoint_000500.pt: not copied: suspected: NaN in weights: w" in text
    assert "deleted" not in text
    listed = json.loads(said("copies", location, "-o", "json")[1])
    assert [one["name"] for one in listed] == NEWEST[:2]


def test_older_checkpoints_are_copied_instead_of_those_with_nan(
    folder: Path, location: Path, said: Commands
) -> None:
    has_nan(folder, NEWEST[0])
    said("mirror", folder, location, "--once", "--keep", 2)
    listed = json.loads(said("copies", location, "-o", "json")[1])
    assert [one["name"] for one in listed] == NEWEST[1:]


def test_a_copy_in_whose_checkpoint_nan_is_found_later_is_not_restored(
    folder: Path, location: Path, said: Commands
) -> None:
    assert said("mirror", folder, location, "--once")[0] == 0
    has_nan(folder, NEWEST[0])
    said("mirror", folder, location, "--once")
    shutil.rmtree(folder)
    for path in folder.parent.glob(".primary.*"):
        path.unlink()  # the copies alone are left

    code, text = said("restore", location, folder)

    assert code == 0, text
    assert names(folder) == [NEWEST[1]]
    assert said("restore", location, folder, "--name", NEWEST[0])[0] == 0
    assert names(folder) == NEWEST[:2]


def test_a_copy_saved_at_or_after_a_bad_step_is_not_restored(
    folder: Path, location: Path, said: Commands
) -> None:
    assert said("mirror", folder, location, "--once")[0] == 0
    started = (folder / NEWEST[2]).stat().st_mtime
    attempt = ResumedAttempt(
        job="j",
        attempt=1,
        at=datetime.fromtimestamp(started, UTC),
        newest_at=datetime.fromtimestamp(started, UTC),
        end=AttemptEnd(kind=FailureKind.APPLICATION, has_saved=True, bad_step=150),
    )
    write_history(folder, CheckpointHistory(attempts=(attempt,)), may_be_inside=False)
    damage(*folder.iterdir())

    code, text = guard(said, folder, location, 2)

    assert code == 0, text
    assert names(folder) == [NEWEST[2]]


def test_suspected_copies_alone_are_only_restored_by_name(
    folder: Path, location: Path, said: Commands
) -> None:
    for name in NEWEST[1:]:
        (folder / name).unlink()
    assert said("mirror", folder, location, "--once")[0] == 0
    has_nan(folder, NEWEST[0])
    said("mirror", folder, location, "--once")
    damage(*folder.iterdir())
    before = content(folder)

    code, text = guard(said, folder, location)

    assert (code, content(folder)) == (1, before)
    assert "1 copy is suspected; to restore the newest one, run: holdfast checkpoint" in text


def test_a_copy_within_the_limit_is_restored_instead_of_asking(
    folder: Path, location: Path, said: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_CHECKPOINT_MAX_ROLLBACK", "90m")
    assert said("mirror", folder, location, "--once")[0] == 0
    damage(*(folder / name for name in NEWEST[:2]), copies_of(location, NEWEST[0]))

    assert guard(said, folder, "", 1)[0] == 1
    code, text = guard(said, folder, location, 1)

    assert code == 0, text
    assert f"{NEWEST[2]} is older than the limit of a rollback; {NEWEST[1]} was restored" in text
    assert names(folder) == NEWEST[1:]
    [attempt] = read_history(folder).attempts
    assert attempt.checkpoint == NEWEST[1]


def test_a_copy_beyond_the_limit_waits_for_a_person(
    folder: Path, location: Path, said: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_CHECKPOINT_MAX_ROLLBACK", "30m")
    assert said("mirror", folder, location, "--once")[0] == 0
    damage(*folder.iterdir(), copies_of(location, NEWEST[0]))
    before = content(folder)

    code, text = guard(said, folder, location, 1)

    assert (code, content(folder)) == (1, before)
    assert "2 copies are older than the limit of a rollback" in text


@pytest.mark.parametrize("recording", ["deepspeed", "megatron", "dcp", "hf_trainer"])
def test_a_restored_checkpoint_is_loaded_in_an_empty_directory(
    recording: str, tmp_path: Path, location: Path, said: Commands
) -> None:
    top = unpacked(recording, tmp_path / "unpacked")
    for source in sorted(path for path in top.iterdir() if path.is_dir()):
        place = location / source.name
        code, text = said("mirror", source, place, "--once", "--keep", 1)
        assert code == 0, text
        new = tmp_path / "new" / source.name

        code, text = said("restore", place, new)

        assert code == 0, text
        assert "starts from the beginning" not in text
        [listed] = json.loads(said("list", new, "-o", "json")[1])
        assert listed["is_choice"], (source.name, text)


def test_the_history_knows_a_restored_directory(
    tmp_path: Path, location: Path, said: Commands
) -> None:
    folder = unpacked("dcp", tmp_path / "unpacked") / "sync"
    assert said("mirror", folder, location, "--once", "--keep", 1)[0] == 0
    assert guard(said, folder, location, 1)[0] == 0
    [first] = read_history(folder).attempts
    shutil.rmtree(folder)

    assert guard(said, folder, location, 2)[0] == 0

    second = read_history(folder).attempts[-1]
    assert (second.checkpoint, second.saved_at) == (first.checkpoint, first.saved_at)
    assert replace(second, end=None).attempt == 2
    assert first.at < second.at < datetime.now(UTC) + timedelta(seconds=1)
