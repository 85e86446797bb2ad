"""Copies of checkpoints in a second location, and checkpoints that are restored from there."""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from moto.server import ThreadedMotoServer
from recorded import unpacked

from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.adapters.checkpoints.files import DirectoryFiles
from holdfast.adapters.copies.table import open_copies
from holdfast.apps.main import run
from holdfast.decisions.checkpoint_choice import ResumeOutcome
from holdfast.decisions.checkpoint_copies import (
    RetentionPolicy,
    expired_copies,
    missing_copies,
    preferred,
)
from holdfast.decisions.checkpoint_restore import needs_restore
from holdfast.decisions.checkpoint_trust import Trust
from holdfast.engine.checkpoint_mirror import CheckpointMirror
from holdfast.model.checkpoint_copies import CheckpointCopy
from holdfast.model.checkpoints import Checkpoint, CheckpointHistory, ResumedAttempt
from holdfast.model.errors import BackendError
from tests.ports.builders import NOW
from tests.ports.fakes import FakeClock

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/dev/null",
}
LOCATIONS = ("directory", "memory", "s3")


@pytest.fixture(scope="module")
def s3_server() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL_S3": s3_server}.items():
        monkeypatch.setenv(name, value)
    name = f"copies-{uuid.uuid4()}"
    boto3.client("s3").create_bucket(Bucket=name)
    return name


@pytest.fixture(params=LOCATIONS)
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "directory":
            return str(tmp_path / "copies")
        case "memory":
            return f"memory://{uuid.uuid4()}/copies"
    return f"s3://{request.getfixturevalue('bucket')}/jobs/llama"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three complete checkpoints of torch.save, and ``latest.pt``."""
    unpacked("torch_save", tmp_path / "unpacked")
    folder = tmp_path / "primary"
    shutil.copytree(tmp_path / "unpacked" / "legacy", folder)
    (folder / "latest.pt").unlink()
    for number, path in enumerate(sorted(folder.iterdir())):
        at = time.time() - 3600 + number * 60
        os.utime(path, (at, at))
    return folder


def mirror_of(folder: Path, location: str, clock: FakeClock | None = None) -> CheckpointMirror:
    return CheckpointMirror(
        CheckpointDirectory(folder),
        DirectoryFiles(folder),
        open_copies(location),
        clock or FakeClock(datetime.now(UTC)),
    )


def restore_best(mirror: CheckpointMirror) -> tuple[CheckpointCopy, tuple[str, ...]]:
    return mirror.restore(preferred(mirror.copies(), Trust()))


def names(copies: tuple[CheckpointCopy, ...]) -> list[str]:
    return [copy.name for copy in copies]


NEWEST = [f"checkpoint_000{step}00.pt" for step in (3, 2, 1)]


def test_what_is_restored_is_what_was_copied(folder: Path, location: str, tmp_path: Path) -> None:
    mirror = mirror_of(folder, location)
    done = mirror.run_once(RetentionPolicy(keep=2))

    assert names(done.copied) == NEWEST[:2]
    assert mirror.run_once(RetentionPolicy(keep=2)).copied == ()
    copy, damaged = restore_best(mirror_of(tmp_path / "new", location))
    assert (copy.name, damaged) == (NEWEST[0], ())
    restored = tmp_path / "new" / NEWEST[0]
    assert restored.read_bytes() == (folder / NEWEST[0]).read_bytes()
    again = mirror_of(tmp_path / "new", location).run_once(RetentionPolicy(keep=2))
    assert again.copied == (), "a restored checkpoint is not another one"


def test_a_checkpoint_of_many_files_is_copied_with_its_directories(
    location: str, tmp_path: Path
) -> None:
    folder = unpacked("hf_trainer", tmp_path / "unpacked") / "one_file"
    mirror = mirror_of(folder, location)
    done = mirror.run_once(RetentionPolicy(keep=1))
    [copy] = done.copied

    restore_best(mirror_of(tmp_path / "new", location))

    for path in (folder / copy.name).rglob("*"):
        if path.is_file():
            assert (tmp_path / "new" / path.relative_to(folder)).read_bytes() == path.read_bytes()


def test_a_damaged_checkpoint_is_not_copied(folder: Path, location: str) -> None:
    data = bytearray((folder / NEWEST[0]).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / NEWEST[0]).write_bytes(data)

    done = mirror_of(folder, location).run_once(RetentionPolicy(keep=2))

    assert names(done.copied) == NEWEST[1:2]
    assert [name for name, _ in done.skipped] == NEWEST[:1]


def test_a_damaged_copy_is_passed_over(folder: Path, location: str, tmp_path: Path) -> None:
    mirror_of(folder, location).run_once(RetentionPolicy())
    store = open_copies(location)
    for key, size in list(store.list_keys()):
        if NEWEST[0] in key and not key.endswith("manifest.json"):
            store.write(key, [b"x" * size])
        if NEWEST[1] in key and not key.endswith("manifest.json"):
            store.delete(key)

    copy, damaged = restore_best(mirror_of(tmp_path / "new", location))

    assert copy.name == NEWEST[2]
    assert len(damaged) == 1
    assert "SHA-256 does not match" in damaged[0]
    assert [path.name for path in (tmp_path / "new").iterdir()] == NEWEST[2:]


def test_without_a_usable_copy_nothing_is_restored(location: str, tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="no usable copy: none is complete"):
        restore_best(mirror_of(tmp_path / "new", location))


def test_an_existing_checkpoint_is_never_replaced(folder: Path, location: str) -> None:
    mirror = mirror_of(folder, location)
    mirror.run_once(RetentionPolicy())
    with pytest.raises(BackendError, match="already exists; rename or move it"):
        restore_best(mirror)


def test_a_checkpoint_that_is_saved_again_under_its_name_is_another_copy(
    folder: Path, location: str
) -> None:
    mirror = mirror_of(folder, location)
    mirror.run_once(RetentionPolicy(keep=1))
    again = folder / NEWEST[0]
    again.write_bytes(again.read_bytes())

    done = mirror.run_once(RetentionPolicy(keep=1))

    assert names(done.copied) == names(done.deleted) == NEWEST[:1]
    assert [copy.saved_at for copy in mirror.copies()] == [done.copied[0].saved_at]


def test_a_manifest_with_paths_outside_of_the_checkpoint_writes_nothing_there(
    folder: Path, tmp_path: Path
) -> None:
    location = str(tmp_path / "copies")
    mirror_of(folder, location).run_once(RetentionPolicy(keep=1))
    [manifest] = (tmp_path / "copies").glob("*/manifest.json")
    value = json.loads(manifest.read_text())
    for path in ("../../../outside", str(tmp_path / "outside")):
        value["files"][0]["path"] = path
        source = manifest.parent / "files" / path
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_bytes((manifest.parent / "file").read_bytes())
        manifest.write_text(json.dumps(value))
        with pytest.raises(BackendError):
            restore_best(mirror_of(tmp_path / "deep" / "new", location))
    assert not (tmp_path / "deep" / "outside").exists()
    assert not (tmp_path / "deep" / "new").exists() or not any(
        (tmp_path / "deep" / "new").iterdir()
    )


MIRROR = """
import sys, time
from pathlib import Path
from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.adapters.checkpoints.files import DirectoryFiles
from holdfast.adapters.copies.table import open_copies
from holdfast.apps.clock import SystemClock
from holdfast.decisions.checkpoint_copies import RetentionPolicy
from holdfast.engine.checkpoint_mirror import CheckpointMirror
folder, location, keep = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
mirror = CheckpointMirror(
    CheckpointDirectory(folder), DirectoryFiles(folder), open_copies(location), SystemClock(),
    lambda count: time.sleep(0.002),
)
print("ready", flush=True)
mirror.run_once(RetentionPolicy(keep=keep))
"""


def assert_whole(location: str, copies: tuple[CheckpointCopy, ...]) -> None:
    store = open_copies(location)
    sums = {key: hashlib.sha256(b"".join(store.read(key))) for key, _ in store.list_keys()}
    for copy in copies:
        [key] = [key for key in sums if key.endswith(f"@{copy.saved_at:%Y%m%dT%H%M%S.%fZ}/file")]
        assert sums[key].hexdigest() == copy.files[0].sha256


@pytest.mark.parametrize("kind", ["directory", "s3"])
def test_a_mirror_killed_at_any_moment_leaves_whole_copies_only(
    folder: Path, kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    location = str(tmp_path / "copies")
    if kind == "s3":
        location = f"s3://{request.getfixturevalue('bucket')}/jobs"
    pause = random.Random(7)
    newest = folder / NEWEST[0]
    content = bytearray(newest.read_bytes())
    for number in range(examples(25)):
        content[-4] = number  # the lowest byte of a weight
        newest.write_bytes(content)
        process = subprocess.Popen(
            [sys.executable, "-c", MIRROR, folder, location, str(number % 3 + 1)],
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(pause.random() * 0.15)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()

        assert_whole(location, mirror_of(folder, location).copies())
    mirror = mirror_of(folder, location)
    done = mirror.run_once(RetentionPolicy(keep=1))
    assert done.skipped == ()
    keys = [key for key, _ in open_copies(location).list_keys()]
    assert len(keys) == 2, "one file and its manifest"


TIMES = st.sampled_from([NOW - timedelta(hours=hours) for hours in range(6)])
POLICIES = st.builds(
    RetentionPolicy,
    keep=st.integers(1, 4),
    max_age=st.none() | st.sampled_from([timedelta(microseconds=1), timedelta(hours=2)]),
)


def a_copy(name: str, at: datetime) -> CheckpointCopy:
    return CheckpointCopy(name=name, step=None, format="dcp", saved_at=at, copied_at=NOW, files=())


COPIES = st.lists(st.builds(a_copy, st.sampled_from("ab"), TIMES), unique=True)
CHECKPOINTS = st.lists(
    st.builds(
        lambda name, at: Checkpoint(name=name, step=None, is_ended=True, changed_at=at),
        st.sampled_from("ab"),
        TIMES,
    ),
    unique_by=lambda one: one.name,
)


@settings(max_examples=examples(500))
@given(COPIES, CHECKPOINTS, POLICIES)
def test_the_newest_copy_stays_and_nothing_is_copied_to_be_deleted(
    copies: list[CheckpointCopy], checkpoints: list[Checkpoint], policy: RetentionPolicy
) -> None:
    missing = missing_copies(checkpoints, copies, policy, NOW)
    after = [*copies, *(a_copy(one.name, one.changed_at) for one in missing)]
    deleted = expired_copies(after, policy, NOW)
    kept = [copy for copy in after if copy not in deleted]

    assert bool(kept) == bool(after)
    assert len(kept) <= policy.keep
    if after:
        assert max(copy.saved_at for copy in after) == max(copy.saved_at for copy in kept)
    times = {copy.saved_at for copy in after}
    if len(times) == len(after):
        assert not {(one.name, one.changed_at) for one in missing} & {
            (copy.name, copy.saved_at) for copy in deleted
        }
    if policy.max_age is not None and len(kept) > 1:
        newest = max(copy.saved_at for copy in kept)
        assert all(
            NOW - copy.saved_at <= policy.max_age or copy.saved_at == newest for copy in kept
        )
    assert expired_copies(kept, policy, NOW) == ()


def said(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str]:
    code = run(["checkpoint", *map(str, argv)])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def test_the_commands_mirror_list_and_restore(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copies, new = tmp_path / "copies", tmp_path / "new"
    code, text = said(capsys, "mirror", folder, copies, "--once", "--dry-run")
    assert (code, text.splitlines()[0]) == (
        0,
        f"would copy {NEWEST[0]} to {copies}, if it is complete",
    )
    assert not copies.exists()
    code, text = said(capsys, "mirror", folder, copies, "--once", "--keep=2", "--bandwidth=100M")
    assert code == 0
    assert f"{NEWEST[0]}: copied to {copies}" in text
    assert said(capsys, "mirror", folder, copies, "--once", "--keep=2")[1] == (
        f"{copies}: up to date\n"
    )
    code, text = said(capsys, "copies", copies, "-o", "json")
    assert [one["name"] for one in json.loads(text)] == NEWEST[:2]
    code, text = said(capsys, "restore", copies, new, "--dry-run")
    assert (code, new.exists()) == (0, False)
    code, text = said(capsys, "restore", copies, new, "--name", NEWEST[1])
    assert code == 0
    assert f"restored {NEWEST[1]} to {new}" in text
    assert "checksums not compared, use holdfast checkpoint verify --depth hashes" in text
    code, text = said(capsys, "restore", copies, new, "--name", "none")
    assert code == 1
    assert "no usable copy of none" in text


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["mirror", "nowhere", "y", "--once"], "nowhere does not exist; expected a directory"),
        (["mirror", "x", "s3:///nowhere", "--once"], "no bucket; expected s3://BUCKET/PREFIX"),
        (["mirror", "x", "nosuch://x", "--once"], "nosuch://x: "),
        (["mirror", "x", "y", "--bandwidth", "fast"], "'fast' is not a size"),
        (["mirror", "x", "y", "--keep", "0"], "0 is not in the range"),
    ],
)
def test_bad_input_is_explained(argv, why, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").mkdir()
    code, text = said(capsys, *argv)
    assert code == 2
    assert why in text


RESUMED = ResumedAttempt(job="j", attempt=1, at=NOW, checkpoint="step_1", newest_at=NOW)
FRESH = ResumedAttempt(job="j", attempt=1, at=NOW)


@pytest.mark.parametrize("outcome", ResumeOutcome)
@pytest.mark.parametrize("attempts", [(), (FRESH,), (RESUMED,)])
def test_a_copy_is_restored_only_where_checkpoints_were_lost(
    outcome: ResumeOutcome, attempts: tuple[ResumedAttempt, ...]
) -> None:
    lost = {ResumeOutcome.EMPTY, ResumeOutcome.MISSING, ResumeOutcome.START_OVER}
    expected = outcome is ResumeOutcome.NONE_COMPLETE or (
        outcome in lost and attempts == (RESUMED,)
    )
    assert needs_restore(outcome, CheckpointHistory(attempts=attempts)) == expected


def test_the_guard_restores_a_copy_of_a_directory_that_was_lost(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setenv("HOLDFAST_JOB", "j")
    location = str(tmp_path / "copies")
    guard = ["checkpoint", "guard", str(folder), "--rank", "0", "--restore-from", location]
    assert run(["checkpoint", "mirror", str(folder), location, "--once"]) == 0
    assert run([*guard, "--attempt", "1"]) == 0
    for path in folder.iterdir():
        path.unlink()

    assert run([*guard, "--attempt", "2"]) == 0

    assert [path.name for path in folder.iterdir()] == NEWEST[:1]
    assert f"{NEWEST[0]} was restored from {location}" in capsys.readouterr().err


def test_without_a_copy_nothing_is_moved(folder: Path, tmp_path: Path, capsys) -> None:
    for path in folder.iterdir():
        os.truncate(path, 100)
        os.utime(path, (1_700_000_000, 1_700_000_000))
    guard = ["checkpoint", "guard", str(folder), "--rank", "0", "--restore-from"]

    assert run([*guard, str(tmp_path / "copies"), "--job", "j", "--attempt", "1"]) == 0

    assert sorted(path.name for path in folder.iterdir()) == sorted(NEWEST)
    assert "nothing was restored: " in capsys.readouterr().err
