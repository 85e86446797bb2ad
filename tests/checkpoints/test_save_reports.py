"""``holdfast.training.checkpoint_saved``: what a report changes, and what it does not."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import content, unpacked

from holdfast import training
from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.adapters.checkpoints.manifests import DirectoryManifests
from holdfast.adapters.checkpoints.save_reports import read_reports
from holdfast.apps.main import run
from holdfast.apps.run.checkpoint_watch import SETTLE, watch_of
from holdfast.engine.checkpoint_guard import guard
from holdfast.engine.checkpoint_watch import CheckpointWatch, WatchRound
from holdfast.model.checkpoints import Depth

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PACKAGE = Path(training.__file__).parents[2]


class StoppedClock:
    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return self.time.timestamp()


def touch(path: Path, at: datetime = NOW) -> None:
    os.utime(path, (at.timestamp(), at.timestamp()))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    """Checkpoints of Hugging Face's Trainer; the newest one was written just now."""
    own = unpacked("hf_trainer", tmp_path) / "one_file"
    monkeypatch.setenv("HOLDFAST_CHECKPOINT_DIR", str(own))
    monkeypatch.delenv("RANK", raising=False)
    for path in own.rglob("*"):
        touch(path, NOW - timedelta(hours=1))
    for path in newest(own).iterdir():
        touch(path)
    return own


def newest(folder: Path) -> Path:
    return folder / CheckpointDirectory(folder).survey().checkpoints[0].name


@pytest.fixture
def watch(folder: Path) -> CheckpointWatch:
    """A watch that has verified the older checkpoints."""
    own = watch_of(folder, None)
    own.clock = StoppedClock()
    while own.run_once().verified is not None:
        pass
    assert newest(folder).name not in DirectoryManifests(folder).names()
    return own


def counting_reads(watch: CheckpointWatch) -> list[str]:
    reads: list[str] = []
    record = watch.contents.record

    def counted(name, file):
        reads.append(name)
        return record(name, file)

    watch.contents = replace(watch.contents, record=counted)
    return reads


def test_a_reported_save_is_read_at_once_and_counts_when_its_files_are_old_enough(
    folder: Path, watch: CheckpointWatch
) -> None:
    last, reads = newest(folder), counting_reads(watch)
    assert watch.run_once() == WatchRound(), "without a report, its files are too new"
    assert not reads

    training.checkpoint_saved(30, last)
    assert watch.run_once() == WatchRound(has_early=True)
    files = len(reads)
    assert files == len(list(last.iterdir()))
    assert last.name not in DirectoryManifests(folder).names()
    watch.clock.time += SETTLE - timedelta(microseconds=1)
    assert watch.run_once() == WatchRound(has_early=True)
    watch.clock.time = NOW + SETTLE
    done = watch.run_once()

    assert done.verified is not None
    assert (done.verified.name, done.has_early) == (last.name, False)
    assert done.verified == DirectoryManifests(folder).read(last.name)
    assert len(reads) == files, "it is read once"
    assert watch.run_once() == WatchRound()


def test_a_rank_that_writes_after_an_early_report_is_no_damage(
    folder: Path, watch: CheckpointWatch
) -> None:
    last = newest(folder)
    training.checkpoint_saved(30, last)
    assert watch.run_once().has_early

    watch.clock.time = later = NOW + timedelta(seconds=1)
    (last / "rng_state_0.pth").write_bytes((last / "rng_state_0.pth").read_bytes())
    touch(last / "rng_state_0.pth", later)
    assert watch.run_once() == WatchRound(), "one report leads to one early verification"
    watch.clock.time += SETTLE
    done = watch.run_once()

    assert done.verified is not None
    assert done.verified.is_good
    assert done.verified.saved_at == later
    assert not guard(CheckpointDirectory(folder, sample=8), Depth.SIZES, None).has_changes


def test_a_save_over_a_verified_one_is_no_damage_while_it_is_written(
    folder: Path, watch: CheckpointWatch
) -> None:
    last = newest(folder)
    watch.clock.time += SETTLE
    touch(last / "rng_state_0.pth", NOW - timedelta(seconds=5))
    assert watch.run_once().verified is not None

    with (last / "model.safetensors").open("r+b") as file:
        file.truncate(10_000)
    touch(last / "model.safetensors", watch.clock.time)
    touch(last, watch.clock.time)
    training.checkpoint_saved(30, last)

    assert watch.run_once() == WatchRound()
    watch.clock.time += SETTLE
    assert [one.name for one in watch.run_once().damaged] == [last.name], "it was not completed"


def test_a_report_makes_nothing_complete(folder: Path, watch: CheckpointWatch) -> None:
    last = newest(folder)
    (last / "trainer_state.json").unlink()
    touch(last)
    before = guard(CheckpointDirectory(folder), Depth.SIZES, None).choice
    training.checkpoint_saved(30, last)
    watch.clock.time += SETTLE

    assert watch.run_once() == WatchRound()
    assert last.name not in DirectoryManifests(folder).names()
    after = guard(CheckpointDirectory(folder), Depth.SIZES, None).choice
    assert before.outcome is after.outcome
    assert (before.resume and before.resume.name) == (after.resume and after.resume.name)


def test_list_and_show_have_the_report(folder: Path, capsys) -> None:
    last, before = newest(folder), content(folder)
    training.checkpoint_saved(30, last / "model.safetensors")

    run(["checkpoint", "list", str(folder), "-o", "wide"])
    head, row, older, *_ = capsys.readouterr().out.splitlines()
    at = head.index("REPORTED")
    assert row[at:].split()[0].rstrip("ms0123456789.") == ""
    assert older[at:].split()[0] == "-"
    run(["checkpoint", "show", str(folder), last.name])
    reported = read_reports(folder)[f"{last.name}/model.safetensors"].at
    assert f"{reported:%Y-%m-%d %H:%M:%S}Z" in capsys.readouterr().out
    assert content(folder) == before, "the report is beside the directory"


def test_a_link_is_reported_under_the_name_of_its_target(folder: Path) -> None:
    link = folder / "latest"
    link.symlink_to(newest(folder).name)

    training.checkpoint_saved(30, link)

    assert set(read_reports(folder)) == {newest(folder).name}


@pytest.mark.parametrize("name", ["HOLDFAST_CHECKPOINT_DIR", "RANK"])
def test_it_does_nothing_without_holdfast_and_on_other_ranks(
    name: str, folder: Path, monkeypatch
) -> None:
    monkeypatch.setenv(name, "" if name != "RANK" else "1")

    training.checkpoint_saved(30, newest(folder))

    assert read_reports(folder) == {}


@pytest.mark.parametrize(
    ("step", "path", "why"),
    [
        (1, "/elsewhere/step-1", "expected a path in HOLDFAST_CHECKPOINT_DIR="),
        ("x", "step-1", "'str' object cannot be interpreted as an integer"),
        (1, None, "NoneType"),
        (1, "a\0b", "null"),
    ],
)
def test_it_raises_nothing_and_logs_why(step, path, why: str, folder: Path, caplog) -> None:
    training.checkpoint_saved(step, path if path is None else folder / path)

    assert read_reports(folder) == {}
    (record,) = caplog.records
    assert why in record.getMessage()


def test_a_file_that_cannot_be_written_is_logged(folder: Path, caplog) -> None:
    folder.with_name(f".{folder.name}.holdfast-reported").mkdir()

    training.checkpoint_saved(30, newest(folder))

    assert "verified at the next scan: [Errno 21] Is a directory" in caplog.text


@pytest.mark.parametrize(
    ("recording", "name", "is_inside"), [("torch_save", "zip", True), ("accelerate", "", False)]
)
def test_at_a_mount_point_the_report_is_inside_if_the_framework_ignores_it(
    recording: str, name: str, is_inside: bool, tmp_path: Path, monkeypatch, caplog
) -> None:
    home = unpacked(recording, tmp_path)
    own = home / name if name else next(path for path in home.iterdir() if path.is_dir())
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == own)
    monkeypatch.setenv("HOLDFAST_CHECKPOINT_DIR", str(own))

    training.checkpoint_saved(3, newest(own))

    assert (own / ".holdfast-reported").exists() == is_inside
    assert ("is a mount point; use a directory in it" in caplog.text) != is_inside


@given(data=st.binary(max_size=300))
def test_no_content_of_the_file_breaks_a_survey(data: bytes, tmp_path_factory) -> None:
    own = tmp_path_factory.getbasetemp() / "reported" / "ckpt"
    own.mkdir(parents=True, exist_ok=True)
    line = b'{"name": "a", "step": 1, "at": "2026-01-01T00:00:00+00:00"}\n'
    own.with_name(".ckpt.holdfast-reported").write_bytes(data + b"\n" + line)

    CheckpointDirectory(own).survey()

    assert read_reports(own)["a"].at == NOW


def test_a_link_in_place_of_the_file_is_neither_read_nor_written(
    folder: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    target.write_text("")
    folder.with_name(f".{folder.name}.holdfast-reported").symlink_to(target)

    training.checkpoint_saved(30, newest(folder))

    assert target.read_text() == ""
    assert read_reports(folder) == {}


def test_the_running_watch_does_not_wait_for_its_interval(folder: Path) -> None:
    for path in folder.rglob("*"):
        touch(path)
    last = newest(folder)
    hidden = last.rename(folder.parent / "hidden")
    watch = subprocess.Popen(
        [
            *(sys.executable, "-m", "holdfast", "checkpoint", "watch", str(folder)),
            *("--interval", "1h", "--cpu-limit", "100"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert watch.stdout is not None
        older = len(CheckpointDirectory(folder).survey().checkpoints)
        for _ in range(min(older, 3)):
            assert "complete: " in watch.stdout.readline()
        hidden.rename(last)
        os.utime(last / "model.safetensors")
        training.checkpoint_saved(30, last)
        assert watch.stdout.readline().startswith(f"{last.name}: complete: ")
    finally:
        watch.kill()
        watch.communicate()


def test_it_needs_the_standard_library_alone(folder: Path) -> None:
    program = (
        f"from holdfast import training; training.checkpoint_saved(1, {str(newest(folder))!r})"
    )
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}

    subprocess.run([sys.executable, "-S", "-c", program], env=environment, check=True)

    assert set(read_reports(folder)) == {newest(folder).name}


@pytest.mark.torch
def test_the_example_of_the_guide_reports_its_checkpoint(tmp_path: Path, monkeypatch) -> None:
    torch = pytest.importorskip("torch")
    guide = (PACKAGE / "docs/howto/verify-checkpoints.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?checkpoint_saved.*?)^```", guide, re.DOTALL | re.M)
    monkeypatch.setenv("HOLDFAST_CHECKPOINT_DIR", str(tmp_path))
    monkeypatch.delenv("RANK", raising=False)
    path = tmp_path / "checkpoint_000020.pt"

    exec(example, {"torch": torch, "state": {"w": torch.ones(3)}, "step": 20, "path": path})  # noqa: S102 - the text of our own page

    (one,) = CheckpointDirectory(tmp_path).survey().checkpoints
    assert (one.name, one.reported_at) == (path.name, read_reports(tmp_path)[path.name].at)
