"""``holdfast checkpoint``: what it prints, and how it ends."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from recorded import content, unpacked

from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.main import run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return unpacked("megatron", tmp_path) / "torch_dist"


def cut(folder: Path, step: int) -> None:
    path = folder / f"iter_{step:07d}/__1_0.distcp"
    os.truncate(path, path.stat().st_size - 1)


def test_a_dry_run_prints_what_would_be_done(folder: Path, capsys) -> None:
    cut(folder, 300)
    before = content(folder)

    arguments = ["--dry-run", "--job-stopped", "-o", "json"]
    assert run(["checkpoint", "verify", str(folder), *arguments]) == 0

    output = json.loads(capsys.readouterr().out)
    assert output["directory"] == str(folder)
    assert (output["format"], output["outcome"], output["dry_run"]) == (
        "megatron",
        "resume",
        True,
    )
    assert (output["checkpoint"], output["step"], output["depth"]) == (
        "iter_0000200",
        200,
        "sizes",
    )
    assert (output["tracker"], output["set_back"], output["aside"]) == (
        "300",
        True,
        ["iter_0000300"],
    )
    assert "bytes instead of" in output["problems"]["iter_0000300"][0]
    assert content(folder) == before


def test_checkpoints_since_a_bad_loss_are_moved_once(folder: Path, capsys) -> None:
    arguments = ["checkpoint", "verify", str(folder), "--job-stopped", "-o", "json"]
    bad = ["--bad-loss", "250@2026-01-01T12:00:00+00:00"]
    assert run([*arguments, *bad, "--dry-run"]) == 0
    assert json.loads(capsys.readouterr().out)["suspected"] == ["iter_0000300"]
    assert (folder / "iter_0000300").exists()

    assert run([*arguments, *bad]) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["checkpoint"], done["aside"]) == ("iter_0000200", ["iter_0000300"])
    assert run([*arguments, *bad]) == 0
    assert json.loads(capsys.readouterr().out)["aside"] == []

    assert run([*arguments, "--bad-loss", "250"]) == ExitCode.BAD_INPUT
    assert "'250': expected STEP@TIME" in capsys.readouterr().err


def test_what_ranks_save_after_a_restart_for_a_bad_loss_stays_good(folder: Path, capsys) -> None:
    arguments = ["checkpoint", "verify", str(folder), "--job-stopped", "-o", "json"]
    first = [*arguments, "--bad-loss", "150@2026-01-01T12:00:00+00:00"]
    saved = folder / "iter_0000300"
    saved.rename(folder.parent / saved.name)
    assert run(first) == 0
    assert json.loads(capsys.readouterr().out)["aside"] == ["iter_0000200"]

    later = time.time() + 1  # of a file system with a coarse clock
    (folder.parent / saved.name).rename(saved)
    for path in (saved, *saved.iterdir()):
        os.utime(path, (later, later))
    (folder / "latest_checkpointed_iteration.txt").write_text("300", encoding="utf-8")
    while time.time() <= later:
        time.sleep(0.05)
    assert run(first) == 0  # by the launcher that takes over from the coordinator
    assert json.loads(capsys.readouterr().out)["aside"] == []
    assert run([*arguments, "--bad-loss", "350@2026-01-02T12:00:00+00:00"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["checkpoint"], found["aside"]) == ("iter_0000300", [])


def test_what_was_done_is_printed(folder: Path, capsys) -> None:
    cut(folder, 300)

    assert run(["checkpoint", "verify", str(folder), "--job-stopped", "--depth", "hashes"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{folder}: iter_0000300 is damaged: __1_0.distcp has ")
    assert lines[0].endswith(f"; moved to {folder}.set-aside/iter_0000300")
    pointed, chosen = lines[1:]
    assert pointed == (
        f"{folder}: latest_checkpointed_iteration.txt (was '300') was set to iter_0000200"
    )
    assert chosen.startswith(
        f"{folder}: iter_0000200 is complete (sizes and checksums); the framework loads it; the job"
        " repeats 100 steps and 1h"
    )


def test_nothing_complete_is_a_failure(folder: Path, capsys) -> None:
    for step in (100, 200, 300):
        cut(folder, step)
    before = content(folder)

    assert run(["checkpoint", "verify", str(folder), "--job-stopped"]) == ExitCode.FAILED

    out, err = capsys.readouterr()
    assert out == ""
    assert "no checkpoint is complete; nothing was changed" in err
    assert "the framework loads it" not in err
    assert content(folder) == before


def test_a_first_save_that_was_cut_off_has_a_code_of_its_own(folder: Path, capsys) -> None:
    shutil.rmtree(folder / "iter_0000300")
    shutil.rmtree(folder / "iter_0000200")
    (folder / "latest_checkpointed_iteration.txt").unlink()
    (folder / "iter_0000100/metadata.json").unlink()

    code = run(["checkpoint", "verify", str(folder), "--job-stopped"])

    assert code == ExitCode.STARTS_OVER == 4
    assert "was interrupted; the job starts from the beginning" in capsys.readouterr().out
    assert run(["checkpoint", "verify", str(folder)]) == ExitCode.OK


def test_what_changed_a_moment_ago_is_left_alone_unless_the_job_has_stopped(
    folder: Path, capsys, monkeypatch
) -> None:
    cut(folder, 300)
    before = content(folder)

    assert run(["checkpoint", "verify", str(folder)]) == ExitCode.FAILED
    assert "a process may still be writing it; nothing was changed" in capsys.readouterr().err
    assert content(folder) == before

    monkeypatch.setenv("HOLDFAST_ATTEMPT", "1")
    assert run(["checkpoint", "verify", str(folder)]) == ExitCode.OK
    monkeypatch.setenv("HOLDFAST_ATTEMPT", "0")
    assert run(["checkpoint", "verify", str(folder)]) == ExitCode.FAILED
    assert "attempt 1 of this job uses" in capsys.readouterr().err


def test_what_is_not_recognized_is_left_alone_and_reported(tmp_path: Path, capsys) -> None:
    (tmp_path / "ocdbt.process_0").write_text("data")
    (tmp_path / "train.log").write_text("step 1")

    assert run(["checkpoint", "verify", str(tmp_path)]) == ExitCode.FAILED
    assert "ocdbt.process_0: no checkpoint of a known format" in capsys.readouterr().err
    assert run(["checkpoint", "list", str(tmp_path)]) == ExitCode.FAILED
    assert run(["checkpoint", "verify", str(tmp_path), "--format", "tar"]) == ExitCode.BAD_INPUT


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("nvrx", "; did you mean nvrx-local?"),
        ("HF_Tr", "; did you mean hf-trainer?"),
        ("megatron-lm", "; did you mean megatron?"),
        ("fsdp", "; did you mean torch-save?"),
        ("deepspeed-zero", "; did you mean deepspeed?"),
        ("lightening", "; did you mean lightning?"),
        ("xyz", "."),
    ],
)
def test_an_unknown_format_is_named_with_the_nearest_ones_before_the_list_and_plug_ins(
    folder: Path, capsys, given: str, hint: str
) -> None:
    assert run(["checkpoint", "list", str(folder), "--format", given]) == ExitCode.BAD_INPUT

    error = capsys.readouterr().err
    assert f'checkpoint format "{given}" not found{hint} Formats: dlrover, ' in error
    assert error.index("safetensors, or pattern:") < error.index("entry-point group")


def test_logs_alone_are_no_checkpoints(tmp_path: Path, capsys) -> None:
    (tmp_path / "train.log").write_text("step 1")
    (tmp_path / "runs").mkdir()

    assert run(["checkpoint", "verify", str(tmp_path)]) == ExitCode.OK
    assert "no checkpoint yet" in capsys.readouterr().out


def test_the_list_shows_each_checkpoint_and_which_one_is_loaded(folder: Path, capsys) -> None:
    cut(folder, 300)
    before = content(folder)

    assert run(["checkpoint", "list", str(folder)]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:5] == ["iter_0000300", "300", "damaged", "yes", "-"]
    assert lines[2].split()[:5] == ["iter_0000200", "200", "complete", "-", "resume"]
    assert lines[3].split()[:5] == ["iter_0000100", "100", "complete", "-", "-"]
    assert content(folder) == before


def test_the_list_shows_what_is_selected(folder: Path, capsys) -> None:
    cut(folder, 300)
    listed = ["checkpoint", "list", str(folder)]

    assert run([*listed, "--state", "damaged", "--reason", "BYTES", "-o", "name"]) == 0
    assert capsys.readouterr().out == "iter_0000300\n"
    assert run([*listed, "--state", "complete", "--sort-by", "name", "--no-headers"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names == ["iter_0000100", "iter_0000200"]
    assert run([*listed, "-l", "name=iter_0000900"]) == 0
    assert capsys.readouterr().err == "No checkpoint matches.\n"


def test_where_the_script_chooses_no_checkpoint_is_marked_as_loaded(tmp_path: Path, capsys) -> None:
    folder = unpacked("torch_save", tmp_path) / "zip"
    paths = sorted(folder.iterdir(), reverse=True)
    os.truncate(paths[0], 100)

    assert run(["checkpoint", "list", str(folder), "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["is_loaded"], row["is_choice"]) for row in rows[:2]] == [
        (False, False),
        (False, True),
    ]

    for path in paths:
        os.truncate(path, 100)
    assert run(["checkpoint", "list", str(folder)]) == ExitCode.FAILED
    assert "resume" not in capsys.readouterr().out


def test_a_directory_that_does_not_exist_is_not_called_empty(tmp_path: Path, capsys) -> None:
    missing = tmp_path / "typo"
    outcomes = []
    for folder in (missing, tmp_path):
        assert run(["checkpoint", "verify", str(folder), "-o", "json"]) == 0
        outcomes.append(json.loads(capsys.readouterr().out)["outcome"])
    assert outcomes == ["does-not-exist", "empty"]

    assert run(["checkpoint", "verify", str(missing)]) == 0
    assert f"{missing} does not exist yet" in capsys.readouterr().out
    assert run(["checkpoint", "list", str(missing)]) == ExitCode.BAD_INPUT
    assert f"{missing} does not exist" in capsys.readouterr().err
    assert run(["checkpoint", "list", str(tmp_path)]) == 0


def test_verification_by_sizes_states_its_limit(folder: Path, capsys) -> None:
    assert run(["checkpoint", "verify", str(folder)]) == 0

    assert (
        "iter_0000300 is complete (sizes only; checksums not compared, use --depth hashes);"
        " the framework loads it" in capsys.readouterr().out
    )
