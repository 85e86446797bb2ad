"""Warnings about saves that a script reported as done although they are incomplete."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import unpacked

from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.adapters.checkpoints.manifests import DirectoryManifests
from holdfast.adapters.checkpoints.save_reports import append_report
from holdfast.apps.main import run
from holdfast.apps.run.checkpoint_watch import watch_of
from holdfast.apps.run.save_metrics import save_metrics_text
from holdfast.decisions.save_reports import SETTLED, incomplete_saves
from holdfast.model.checkpoints import Checkpoint, CheckpointState, SaveReport, Survey
from tests.ports.builders import NOW

TICK = timedelta(microseconds=1)
OLD = datetime.now(UTC) - 2 * SETTLED
METRIC = "holdfast_checkpoint_reported_incomplete"

ages = st.timedeltas(-SETTLED, 3 * SETTLED)


@given(
    state=st.sampled_from(CheckpointState),
    reported=st.none() | ages,
    changed=ages,
)
def test_only_what_is_reported_incomplete_and_old_enough_is_warned_of(
    state, reported, changed
) -> None:
    one = Checkpoint(
        name="a",
        step=1,
        is_ended=True,
        changed_at=NOW - changed,
        state=state,
        reported_at=None if reported is None else NOW - reported,
    )

    found = list(incomplete_saves(Survey(folder="/f", format="x", checkpoints=(one,)), NOW))

    is_false = reported is not None and min(reported, changed) >= SETTLED
    assert bool(found) == (is_false and state is CheckpointState.INCOMPLETE)


@pytest.mark.parametrize(("age", "is_named"), [(SETTLED - TICK, False), (SETTLED, True)])
def test_a_reported_save_that_does_not_exist_is_named_a_minute_later(age, is_named) -> None:
    lost = SaveReport(name="step_9", step=9, at=NOW - age)

    assert bool(list(incomplete_saves(Survey(folder="/f", format="", lost=lost), NOW))) == is_named


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three checkpoints, of which the newest has no marker; nothing has changed for a while."""
    own = unpacked("hf_trainer", tmp_path) / "one_file"
    (newest(own) / "trainer_state.json").unlink()
    for path in (own, *own.rglob("*")):
        os.utime(path, (OLD.timestamp(), OLD.timestamp()))
    return own


def newest(folder: Path) -> Path:
    return folder / CheckpointDirectory(folder).survey().checkpoints[0].name


def report(folder: Path, name: str, at: datetime = OLD) -> None:
    append_report(folder, SaveReport(name=name, step=6, at=at), may_be_inside=False)


def warnings(capsys) -> list[str]:
    return [line for line in capsys.readouterr().err.splitlines() if "warning" in line]


def test_list_warns_of_an_incomplete_save_only_if_it_was_reported(folder: Path, capsys) -> None:
    run(["checkpoint", "list", str(folder)])
    assert warnings(capsys) == []

    report(folder, newest(folder).name)
    run(["checkpoint", "list", str(folder), "-o", "json"])

    out, err = capsys.readouterr()
    assert json.loads(out)[0]["state"] == "incomplete"
    [line] = err.splitlines()
    at = f"{OLD:%Y-%m-%d %H:%M:%S}Z"
    assert line.startswith(
        f"holdfast: warning: {newest(folder).name} was reported as saved at {at}, but is incomplete"
    )
    assert "trainer_state.json" in line
    assert line.endswith("look for errors of that save in the logs of all ranks")


def test_list_does_not_warn_of_a_save_that_may_still_be_written(folder: Path, capsys) -> None:
    report(folder, newest(folder).name)
    os.utime(newest(folder) / "model.safetensors")

    run(["checkpoint", "list", str(folder)])

    assert warnings(capsys) == []


def test_list_warns_of_a_reported_save_that_does_not_exist(folder: Path, capsys) -> None:
    report(folder, "checkpoint-9/model.safetensors")
    run(["checkpoint", "list", str(folder)])
    [line] = warnings(capsys)
    assert "checkpoint-9/model.safetensors was reported as saved at" in line
    assert "but does not exist (step 6)" in line

    report(folder, newest(folder).name, OLD + TICK)
    (newest(folder) / "trainer_state.json").write_text("{}")
    run(["checkpoint", "list", str(folder)])
    assert not any("checkpoint-9" in line for line in warnings(capsys)), "a later one exists"


def test_a_save_that_was_moved_away_is_not_missing(folder: Path, capsys) -> None:
    report(folder, f"{newest(folder).name}/model.safetensors")
    run(["checkpoint", "verify", str(folder), "--job-stopped"])
    said = capsys.readouterr().out
    assert f", although it was reported as saved at {OLD:%Y-%m-%d %H:%M:%S}Z" in said
    assert "but does not exist" not in said

    run(["checkpoint", "list", str(folder)])
    assert warnings(capsys) == []
    run(["checkpoint", "verify", str(folder), "--job-stopped"])
    assert "reported as saved" not in capsys.readouterr().out


def test_verify_names_a_reported_save_that_does_not_exist(folder: Path, capsys) -> None:
    report(folder, "checkpoint-9\n\x1b[31m")

    run(["checkpoint", "verify", str(folder), "--dry-run"])

    assert "checkpoint-9 [31m (step 6) was reported as saved at" in capsys.readouterr().out


def test_the_watch_warns_once_and_its_metric_counts_while_it_is_so(folder: Path) -> None:
    report(folder, newest(folder).name)
    watch = watch_of(folder, None)
    found = []
    while (done := watch.run_once()).verified is not None:
        found += done.incomplete
    found += done.incomplete

    [save] = found
    assert save.name == newest(folder).name
    assert watch.run_once().incomplete == ()
    assert metric(folder) == "1"

    (newest(folder) / "trainer_state.json").write_text('{"global_step": 6}')
    for _ in range(5):
        assert watch.run_once().incomplete == ()
    assert metric(folder) == "0"


def metric(folder: Path) -> str:
    text = save_metrics_text("d", DirectoryManifests(folder).read_summary(), None)
    [line] = [one for one in text.splitlines() if one.startswith(METRIC)]
    return line.rpartition(" ")[2]


def test_the_command_watch_prints_the_warning(folder: Path) -> None:
    report(folder, newest(folder).name)

    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "checkpoint", "watch", str(folder), "--once"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stderr.count(f"warning: {newest(folder).name} was reported as saved") == 1
