"""``holdfast checkpoint show | choose | release``, and what the next attempt then loads."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest
from recorded import content, unpacked

from holdfast.adapters.checkpoints.attempt_result import AttemptKey
from holdfast.adapters.checkpoints.history import read_history
from holdfast.apps.cli.checkpoint.options import aside_names, checkpoint_names
from holdfast.apps.cli.checkpoint.selection import release
from holdfast.apps.main import run
from holdfast.apps.run.checkpoints import prepare
from holdfast.apps.run.resume_history import AwaitsDecision, NextAttempt
from holdfast.decisions.checkpoint_trust import CheckpointPolicy
from holdfast.model.checkpoints import AttemptEnd, Depth
from holdfast.model.jobs import FailureKind


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three complete checkpoints, of which the framework loads the newest."""
    return unpacked("dcp", tmp_path) / "sync"


@pytest.fixture
def megatron(tmp_path: Path) -> Path:
    return unpacked("megatron", tmp_path) / "torch_dist"


def start(folder: Path, attempt: int, *, failed: bool = True) -> list[str]:
    """Start an attempt; the one before failed at once on healthy nodes."""
    kind = FailureKind.APPLICATION if failed else FailureKind.HARDWARE
    end = AttemptEnd(kind=kind, reason="RankExited")
    next_attempt = NextAttempt(key=AttemptKey(job="job", attempt=attempt), previous=end)
    return prepare(folder, Depth.SIZES, attempt=next_attempt).lines


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def command(capsys, *arguments: str | Path) -> tuple[int, str, str]:
    code = run(["checkpoint", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, err


def test_two_failures_set_a_checkpoint_aside_and_release_puts_it_back(folder, capsys) -> None:
    assert start(folder, 1) == start(folder, 2) == []
    suspected, chosen = start(folder, 3)
    assert "step_3 is complete, but suspected" in suspected
    assert "step_2 is complete" in chosen
    assert names(folder) == ["step_1", "step_2"]

    code, out, _ = command(capsys, "release", folder, "step_3", "-o", "json")

    aside = folder.with_name("sync.set-aside") / "step_3"
    assert (code, json.loads(out)["from"]) == (0, str(aside))
    assert names(folder) == ["step_1", "step_2", "step_3"]
    assert read_history(folder).aside == ()
    assert start(folder, 4) == start(folder, 5) == []
    assert "step_3 is complete, but suspected" in start(folder, 6)[0]  # it failed twice again


def test_faults_of_nodes_make_no_checkpoint_suspect(folder: Path) -> None:
    for attempt in range(1, 6):
        assert start(folder, attempt, failed=False) == []


def test_a_dry_run_of_release_moves_nothing(folder: Path, capsys) -> None:
    for attempt in (1, 2, 3):
        start(folder, attempt)
    before = content(folder.parent)

    code, out, _ = command(capsys, "release", folder, "step_3", "--dry-run")

    assert (code, "would be moved to" in out) == (0, True)
    assert content(folder.parent) == before


def test_release_does_not_replace_a_newer_save_of_the_same_name(folder: Path, capsys) -> None:
    for attempt in (1, 2, 3):
        start(folder, attempt)
    (folder / "step_3").mkdir()

    code, _, err = command(capsys, "release", folder, "step_3")

    assert (code, "step_3 already exists, " in err) == (1, True)
    assert (folder.with_name("sync.set-aside") / "step_3").is_dir()


def test_release_names_what_can_be_released(folder: Path, capsys) -> None:
    for attempt in (1, 2, 3):
        start(folder, attempt)

    code, _, err = command(capsys, "release", folder, "../sync/step_1")

    assert (code, "expected one of: step_3" in err) == (2, True)
    assert names(folder) == ["step_1", "step_2"]


def test_a_history_that_names_a_place_elsewhere_moves_nothing_there(folder, tmp_path) -> None:
    aside = folder.with_name("sync.set-aside")
    aside.mkdir()
    (folder / "step_3").rename(aside / "step_3")
    entry = {"path": str(aside / "step_3"), "why": "", "at": datetime.now(UTC).isoformat()}
    history = folder.with_name(".sync.holdfast-history")
    for name in ("../elsewhere", str(tmp_path / "elsewhere"), ".", ""):
        history.write_text(json.dumps({"aside": [{"name": name, **entry}]}))
        assert run(["checkpoint", "release", str(folder), "step_3", "--dry-run"]) == 0
    assert run(["checkpoint", "release", str(folder), "step_3"]) == 0

    assert names(folder) == ["step_1", "step_2", "step_3"]
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("name", ["step_1", "1"])
def test_the_next_attempt_resumes_once_from_what_a_person_selected(folder, capsys, name) -> None:
    code, out, _ = command(capsys, "choose", folder, name)
    assert (code, out.strip()) == (0, f"{folder}: the next attempt resumes from step_1")

    [chosen] = start(folder, 1)

    assert "step_1 is selected by a person and complete" in chosen
    assert names(folder) == ["step_1"]
    assert sorted(names(folder.with_name("sync.set-aside"))) == ["step_2", "step_3"]
    assert read_history(folder).pin is None
    assert start(folder, 2, failed=False) == []


def test_a_tracker_is_set_to_what_a_person_selected(megatron: Path, capsys) -> None:
    assert command(capsys, "choose", megatron, "200")[0] == 0
    before = content(megatron)
    code, out, _ = command(capsys, "verify", megatron, "--dry-run", "-o", "json")
    assert (code, json.loads(out)["checkpoint"]) == (0, "iter_0000200")
    assert content(megatron) == before
    assert read_history(megatron).pin is not None

    assert command(capsys, "verify", megatron, "--job-stopped")[0] == 0

    assert (megatron / "latest_checkpointed_iteration.txt").read_text() == "200"
    assert read_history(megatron).pin is None


def test_a_selection_can_be_removed_and_a_dry_run_makes_none(folder: Path, capsys) -> None:
    assert command(capsys, "choose", folder, "step_1", "--dry-run")[0] == 0
    assert read_history(folder).pin is None
    assert command(capsys, "choose", folder, "step_1")[0] == 0
    assert command(capsys, "choose", folder, "--none", "--dry-run")[0] == 0
    assert read_history(folder).pin is not None
    assert command(capsys, "choose", folder, "--none")[0] == 0

    assert start(folder, 1) == []
    assert names(folder) == ["step_1", "step_2", "step_3"]


def test_a_damaged_checkpoint_cannot_be_selected(folder: Path, capsys) -> None:
    os.truncate(folder / "step_2/__1_0.distcp", 1000)

    code, _, err = command(capsys, "choose", folder, "step_2")

    assert code == 1
    assert "step_2: damaged: __1_0.distcp has 1000 bytes instead of" in err
    assert read_history(folder).pin is None


@pytest.mark.parametrize("arguments", [[], ["step_1", "--none"], ["step_9"]])
def test_a_selection_needs_one_existing_name(folder: Path, capsys, arguments) -> None:
    code, _, err = command(capsys, "choose", folder, *arguments)

    assert (code, "expected" in err) == (2, True)


def test_a_person_accepts_a_long_rollback(folder: Path, capsys) -> None:
    os.truncate(folder / "step_3/__1_0.distcp", 1000)
    policy = CheckpointPolicy(max_rollback_steps=1)
    os.truncate(folder / "step_2/__1_0.distcp", 1000)
    with pytest.raises(
        AwaitsDecision, match="more than 1d or 1 step; nothing was changed"
    ) as asked:
        prepare(folder, Depth.SIZES, policy=policy)
    accepting = str(asked.value).rpartition("accept with: holdfast checkpoint ")[2]

    assert command(capsys, *accepting.split())[0] == 0

    prepared = prepare(folder, Depth.SIZES, policy=policy)
    result = prepared.lines[-1].split(": ")[1].split(";")[0].split(" (")[0]
    assert (result, prepared.step) == (
        "step_1 is selected by a person and complete",
        1,
    )
    assert names(folder) == ["step_1"]


def test_show_reports_what_is_known_of_a_checkpoint(folder: Path, capsys) -> None:
    start(folder, 1)
    start(folder, 2)

    code, out, _ = command(capsys, "show", folder, "3", "--depth", "hashes", "-o", "json")

    shown = json.loads(out)
    assert code == 0
    assert (shown["name"], shown["step"], shown["format"]) == ("step_3", 3, "dcp")
    assert (shown["state"], shown["depth"], shown["problems"]) == ("complete", "hashes", [])
    ends = [(one["attempt"], one["end"] and one["end"]["kind"]) for one in shown["attempts"]]
    assert ends == [(1, "application"), (2, None)]
    text = command(capsys, "show", folder, "step_3")[1]
    assert "Attempts that resumed from it" in text
    assert "application: RankExited" in text


def test_show_reports_why_a_checkpoint_was_set_aside(folder: Path, capsys) -> None:
    for attempt in (1, 2, 3):
        start(folder, attempt)

    code, out, _ = command(capsys, "show", folder, "step_3", "-o", "json")

    shown = json.loads(out)
    assert (code, shown["state"]) == (1, "set aside")
    assert shown["set_aside"].startswith("suspected: 2 attempts failed on healthy nodes")
    assert [one["attempt"] for one in shown["attempts"]] == [1, 2]
    assert "Reason" in command(capsys, "show", folder, "step_3")[1]


def test_list_marks_what_a_person_selected(folder: Path, capsys) -> None:
    command(capsys, "choose", folder, "step_2")

    _, out, _ = command(capsys, "list", folder, "-o", "json")

    assert [one["is_choice"] for one in json.loads(out)] == [False, True, False]


def test_names_are_completed(folder: Path) -> None:
    for attempt in (1, 2, 3):
        start(folder, attempt)
    context = click.Context(release)
    assert checkpoint_names(context, release.params[1], "step") == []
    context.params["directory"] = folder

    assert [one.value for one in checkpoint_names(context, release.params[1], "st")] == [
        "step_2",
        "step_1",
    ]
    assert [one.value for one in aside_names(context, release.params[1], "")] == ["step_3"]


def test_a_history_that_is_not_valid_counts_as_missing(folder: Path) -> None:
    path = folder.with_name(".sync.holdfast-history")
    for text in ("", "{", "[]", '{"attempts": 1}', "[" * 10_000, "x" * (1 << 21)):
        path.write_text(text)
        assert start(folder, 1) == []
