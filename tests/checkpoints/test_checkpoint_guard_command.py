"""``holdfast checkpoint guard``: one rank verifies, the others wait, then the command runs."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from recorded import content, unpacked

from holdfast.adapters.checkpoints.attempt_claim import ZombieAttempt
from holdfast.adapters.checkpoints.attempt_result import AttemptKey, read_results, write_result
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.main import run
from holdfast.apps.run.checkpoint_verification import (
    AttemptVerification,
    verify_for_all,
    wait_for_result,
)
from holdfast.decisions.set_aside_records import after_moved_lines
from holdfast.model.checkpoints import Depth
from holdfast.model.errors import BackendError
from tests.engines.checkpoint_watches import watches_of
from tests.engines.ports import free_port
from tests.engines.waiting import until

TRACKER = "latest_checkpointed_iteration.txt"
DEEPER = "use --depth hashes"
HOLDFAST = [sys.executable, "-m", "holdfast", "checkpoint"]


@pytest.fixture(autouse=True)
def outside_of_jobs(monkeypatch) -> None:
    for name in ("RANK", "NODE_RANK", "JOB_COMPLETION_INDEX", "HOLDFAST_ATTEMPT", "HOLDFAST_JOB"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory whose newest checkpoint was cut off a moment ago."""
    folder = unpacked("megatron", tmp_path) / "torch_dist"
    path = folder / "iter_0000300/__1_0.distcp"
    os.truncate(path, path.stat().st_size - 1)
    return folder


def verification(
    folder: Path, attempt: int | None = 2, job: str = "uid-1", timeout: float = 60
) -> AttemptVerification:
    key = None if attempt is None else AttemptKey(job=job, attempt=attempt)
    return AttemptVerification(
        folder=folder,
        depth=Depth.SIZES,
        format_name=None,
        key=key,
        timeout=timedelta(seconds=timeout),
    )


def no_wait(_: float) -> None:
    pytest.fail("waited")


def test_ranks_of_a_restarted_job_start_only_after_rank_0_has_repaired_the_directory(
    folder: Path,
) -> None:
    def rank(number: int) -> subprocess.Popen[str]:
        arguments = ["checkpoint", "guard", str(folder), "--", "cat", str(folder / TRACKER)]
        return subprocess.Popen(
            [sys.executable, "-m", "holdfast", *arguments],
            env={**os.environ, "RANK": str(number), "HOLDFAST_ATTEMPT": "2"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    waiting = [rank(2), rank(1)]
    with pytest.raises(subprocess.TimeoutExpired):  # nobody has verified yet
        waiting[0].wait(timeout=3)
    processes = [rank(0), *waiting]
    outputs = [process.communicate(timeout=120) for process in processes]

    assert [process.returncode for process in processes] == [0, 0, 0]
    assert [out.strip() for out, _ in outputs] == ["200"] * 3
    assert "iter_0000300 is damaged" in outputs[0][1]
    assert [err for _, err in outputs[1:]] == ["", ""]
    assert (folder.with_name("torch_dist.set-aside") / "iter_0000300").is_dir()


def test_a_rank_that_waits_ends_at_sigterm_also_as_the_first_process_of_a_container(
    folder: Path,
) -> None:
    key = ("--job=j", "--attempt=2", "--rank=1")
    waiting = subprocess.Popen([*HOLDFAST, "guard", str(folder), *key, "--", "true"])
    try:
        until(lambda: catches(waiting.pid, signal.SIGTERM))
        waiting.terminate()
        assert waiting.wait(timeout=300) == 128 + signal.SIGTERM  # by itself, not by the kernel
    finally:
        waiting.kill()
        waiting.wait()


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler of a signal."""
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    [mask] = [line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")]
    return bool(int(mask, 16) >> (number - 1) & 1)


@pytest.mark.parametrize("rank", ["0", "1"])
def test_the_command_gets_the_directory_for_its_reports(rank: str, tmp_path: Path) -> None:
    (tmp_path / "ckpt").mkdir()
    arguments = ["checkpoint", "guard", "ckpt", "--", "printenv", "HOLDFAST_CHECKPOINT_DIR"]
    environment = {**os.environ, "RANK": rank, "HOLDFAST_CHECKPOINT_DIR": "/elsewhere"}

    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *arguments],
        env=environment, cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert done.stdout == f"{tmp_path / 'ckpt'}\n"


CHILDREN = """
import os
print(os.environ.get("HOLDFAST_CHECKPOINT_WATCH"), os.environ["HOLDFAST_CHECKPOINT_DIR"])
print(open(f"/proc/self/task/{os.getpid()}/children").read().split())
"""


@pytest.mark.parametrize(
    ("rank", "setting", "shown"), [("0", None, "0"), ("1", None, "0"), ("0", "0", "0")]
)
def test_one_process_watches_the_saves_of_the_command(
    rank: str, setting: str | None, shown: str, folder: Path
) -> None:
    environment = {**os.environ, "RANK": rank}
    environment |= {} if setting is None else {"HOLDFAST_CHECKPOINT_WATCH": setting}
    key = ["--job=j", "--attempt=2"]
    write_result(folder, AttemptKey(job="j", attempt=2))
    (folder / "iter_0000300").rename(folder.parent / "broken")
    (folder / TRACKER).write_text("200")

    done = subprocess.run(
        [*HOLDFAST, "guard", str(folder), *key, "--", sys.executable, "-c", CHILDREN],
        env=environment, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip

    where, children = done.stdout.splitlines()
    assert where == f"{shown} {folder}"
    assert (children != "[]") == (rank == "0" and setting is None)


def test_a_save_of_the_command_is_verified_and_the_watch_ends_with_the_command(
    folder: Path,
) -> None:
    output = folder.parent / "output"
    program = ["sh", "-c", f"until [ -e {folder.parent}/end ]; do sleep 0.1; done"]
    port = free_port()
    with output.open("wb") as file:
        guarded = subprocess.Popen(
            [*HOLDFAST, "guard", str(folder), "--job=j", "--rank=0", "--attempt=2", "--", *program],
            env={**os.environ, "HOLDFAST_CHECKPOINT_LISTEN": f"127.0.0.1:{port}"},
            stderr=file,
        )
    until(lambda: "iter_0000200 is complete" in output.read_text())
    until(lambda: watches_of(folder))
    newer = folder / "iter_0000400"
    shutil.copytree(folder / "iter_0000200", newer)
    path = next(newer.glob("*.distcp"))
    os.truncate(path, path.stat().st_size - 1)
    (folder / TRACKER).write_text("400")
    for path in (*newer.rglob("*"), newer):
        os.utime(path, (time.time() - 60,) * 2)

    until(lambda: "iter_0000400: damaged: " in output.read_text())
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    bad = f'holdfast_checkpoint_verifications_total{{directory="{folder}",result="bad"}} 1'
    assert bad in text.splitlines(), text
    (folder.parent / "end").touch()
    assert guarded.wait(timeout=120) == 0
    until(lambda: watches_of(folder) == [])


def test_a_moved_checkpoint_is_recorded_in_the_log_of_the_command(folder: Path) -> None:
    done = subprocess.run(
        [*HOLDFAST, "guard", str(folder), "--rank=0", "--job=uid-1", "--attempt=2", "--", "true"],
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip

    [one] = after_moved_lines((), done.stderr.splitlines())
    assert (one.name, one.state, one.job, one.attempt) == ("iter_0000300", "damaged", "uid-1", 2)
    assert one.resumed == "iter_0000200"
    assert one.path == f"{folder}.set-aside/iter_0000300"


def test_the_result_of_another_attempt_or_job_lets_no_rank_start(folder: Path) -> None:
    write_result(folder, AttemptKey(job="uid-1", attempt=1))
    write_result(folder, AttemptKey(job="uid-0", attempt=2))

    with pytest.raises(BackendError, match=r"rank 0 of attempt 2 did not verify .* within 0s"):
        wait_for_result(verification(folder, timeout=0), no_wait)

    write_result(folder, AttemptKey(job="uid-1", attempt=2))
    wait_for_result(verification(folder, timeout=0), no_wait)


@pytest.mark.parametrize("act", [wait_for_result, lambda one: verify_for_all(one, DEEPER)])
def test_a_rank_of_an_earlier_attempt_does_not_start_and_changes_nothing(act, folder: Path) -> None:
    write_result(folder, AttemptKey(job="uid-1", attempt=3))
    before = content(folder)

    with pytest.raises(ZombieAttempt, match="attempt 3 of job uid-1 has begun"):
        act(verification(folder))
    assert content(folder) == before


def test_what_was_saved_since_a_bad_loss_is_moved_aside_and_the_one_before_is_loaded(
    tmp_path: Path,
) -> None:
    folder = unpacked("megatron", tmp_path) / "torch_dist"
    first, now = verification(folder, 1), time.time()
    for age, name in ((900, "100"), (800, "200"), (200, "300")):
        for path in (*(folder / f"iter_0000{name}").rglob("*"), folder / f"iter_0000{name}"):
            os.utime(path, (now - age,) * 2)
    (folder / "iter_0000300").rename(tmp_path / "later")
    (folder / TRACKER).write_text("200")
    verify_for_all(first, DEEPER, no_wait)
    (tmp_path / "later").rename(folder / "iter_0000300")  # the attempt saves it
    (folder / TRACKER).write_text("300")
    for path in (*(folder / "iter_0000300").rglob("*"), folder / "iter_0000300"):
        os.utime(path)

    ended = replace(
        verification(folder, 2),
        restart_reason="LossNotFinite",
        bad_loss="250@2026-01-01T00:00:00+00:00",
    )
    lines, _ = verify_for_all(ended, DEEPER, no_wait)

    assert any("attempt 1 saved it after step 250 (LossNotFinite)" in line for line in lines), lines
    assert (folder / TRACKER).read_text().strip() == "200"
    assert (folder.with_name("torch_dist.set-aside") / "iter_0000300").is_dir()


def test_a_new_job_of_the_same_directory_starts_again_at_attempt_1(folder: Path) -> None:
    write_result(folder, AttemptKey(job="uid-0", attempt=7))

    verify_for_all(verification(folder, job="uid-1"), DEEPER, no_wait)

    assert read_results(folder) == [AttemptKey(job="uid-1", attempt=2)]


@pytest.mark.parametrize("attempt", [None, 1, 2])
def test_a_checkpoint_that_ranks_may_be_writing_is_left_alone_until_it_is_quiet(
    attempt: int | None, folder: Path
) -> None:
    if attempt == 2:  # its container restarts alone
        write_result(folder, AttemptKey(job="uid-1", attempt=2))
    before, waits = content(folder), []

    def becomes_quiet(_: float) -> None:
        assert content(folder) == before
        waits.append(1)
        for path in (folder / "iter_0000300").rglob("*"):
            os.utime(path, (time.time() - 300,) * 2)

    lines, _ = verify_for_all(verification(folder, attempt), DEEPER, becomes_quiet)

    assert waits
    assert "iter_0000200 is complete" in lines[-1]
    assert (folder / TRACKER).read_text().strip() == "200"


def test_the_command_replaces_the_guard_and_its_exit_code_counts(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "holdfast", "checkpoint", "guard", str(tmp_path / "none")]

    ended = subprocess.run([*program, "--rank", "0", "--", "sh", "-c", "exit 9"], check=False)

    assert ended.returncode == 9


def test_the_job_starts_although_its_checkpoints_cannot_be_verified(tmp_path: Path, capsys) -> None:
    path = tmp_path / "file"
    path.write_text("no directory")

    lines, _ = verify_for_all(verification(path), DEEPER, no_wait)

    assert len(lines) == 1
    assert str(path) in lines[0]
    wait_for_result(verification(path, timeout=0), no_wait)


def test_a_directory_of_the_first_attempt_is_not_created(tmp_path: Path) -> None:
    folder = tmp_path / "llama/checkpoints"

    assert verify_for_all(verification(folder, 1), DEEPER, no_wait) == ([], ())

    assert not folder.exists()
    wait_for_result(verification(folder, 1, timeout=0), no_wait)


def test_bad_input_is_rejected_before_anything_changes(folder: Path, capsys, monkeypatch) -> None:
    before = content(folder)

    assert run(["checkpoint", "guard", str(folder)]) == ExitCode.BAD_INPUT
    assert "rank of this pod unknown: none of RANK, NODE_RANK, " in capsys.readouterr().err
    monkeypatch.setenv("RANK", "first")
    assert run(["checkpoint", "guard", str(folder)]) == ExitCode.BAD_INPUT
    assert "RANK is 'first', expected a number from 0" in capsys.readouterr().err
    arguments = ["--rank", "0", "--attempt", "2", "--", "no-such-program"]
    assert run(["checkpoint", "guard", str(folder), *arguments]) == ExitCode.BAD_INPUT
    assert "no-such-program not found" in capsys.readouterr().err
    assert content(folder) == before


def test_a_result_that_is_not_valid_counts_as_missing(folder: Path) -> None:
    write_result(folder, AttemptKey(job="uid-1", attempt=2))
    [path] = folder.parent.glob(".torch_dist.*")
    for text in ("", "[]", json.dumps({"job": 1, "attempt": "2"}), "{"):
        path.write_text(text)
        assert read_results(folder) == []
