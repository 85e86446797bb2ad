"""``holdfast run`` on jobs that nothing disturbs but themselves."""

import json
import os
import sys
from datetime import timedelta

import pytest

PRINT_ENVIRONMENT = """
import json, os
names = ("MASTER_ADDR MASTER_PORT WORLD_SIZE RANK LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK GROUP_RANK "
         "PET_NNODES PET_NODE_RANK PET_NPROC_PER_NODE PET_MASTER_ADDR PET_MASTER_PORT "
         "HOLDFAST_ATTEMPT HOLDFAST_CHECKPOINT_DIR TORCHELASTIC_ERROR_FILE").split()
print(json.dumps({name: os.environ.get(name) for name in names}))
"""


@pytest.mark.parametrize("nproc", [1, 2])
def test_every_node_gets_the_environment_of_torchrun_and_a_rank_only_if_it_is_one(run, nproc):
    run.environment |= {"RANK": "7", "LOCAL_RANK": "7", "LOCAL_WORLD_SIZE": "7"}

    ended = run.run(
        "--nodes", "3", "--nproc-per-node", str(nproc), "--",
        sys.executable, "-c", PRINT_ENVIRONMENT,
    )  # fmt: skip

    assert ended.returncode == 0, ended.stdout + ended.stderr
    given = [json.loads(run.dir.log(1, rank).read_text()) for rank in range(3)]
    for rank, one in enumerate(given):
        assert one["NODE_RANK"] == one["GROUP_RANK"] == one["PET_NODE_RANK"] == str(rank)
        of_worker = (one["RANK"], one["LOCAL_RANK"], one["LOCAL_WORLD_SIZE"])
        assert of_worker == ((str(rank), "0", "1") if nproc == 1 else (None, None, None))
        assert one["WORLD_SIZE"] == str(3 * nproc)
        assert one["PET_NNODES"] == "3"
        assert one["PET_NPROC_PER_NODE"] == str(nproc)
        assert one["MASTER_ADDR"] == one["PET_MASTER_ADDR"] == "127.0.0.1"
        assert one["MASTER_PORT"] == one["PET_MASTER_PORT"] == given[0]["MASTER_PORT"]
        assert one["HOLDFAST_ATTEMPT"] == "1"
        assert one["HOLDFAST_CHECKPOINT_DIR"] == str(run.dir.checkpoints)
        assert one["TORCHELASTIC_ERROR_FILE"].endswith(f"rank-{rank}.error.json")


def test_a_command_that_is_no_launcher_is_warned_of_where_a_node_has_several_processes(run):
    launcher = [sys.executable, "-m", "torch.distributed.run", "train.py"]
    several = ("--nproc-per-node", "2", "--dry-run", "--")

    warned = run.run(*several, sys.executable, "train.py")

    assert "started once on each node" in warned.stderr
    assert "RANK and LOCAL_RANK are not set" in warned.stderr
    assert run.run(*several, *launcher).stderr == ""
    assert run.run("--dry-run", "--", sys.executable, "train.py").stderr == ""


CRASH = """
import os, sys, time
attempt, rank = os.environ["HOLDFAST_ATTEMPT"], os.environ["RANK"]
if rank == "1":
    raise ValueError("shard 3 is \\x1b[31mdamaged")
time.sleep(%s)
raise RuntimeError("Connection closed by peer [127.0.0.1]:4711")
"""


@pytest.mark.parametrize("pause", ["0", "600"])
def test_the_reason_of_a_crash_is_the_exception_of_the_rank_that_failed_first(run, pause):
    ended = run.run(
        "--nodes", "2", "--max-app-retries", "0", "--", sys.executable, "-c", CRASH % pause
    )

    assert ended.returncode == 1
    reason = "node rank 1 exited with code 1 (ValueError: shard 3 is [31mdamaged)"
    assert run.record().reason.endswith(reason)
    assert reason in run.holdfast("jobs", "describe", run.name).stdout.replace("\n", " ")
    assert run.record().failure.is_alone is not False


def test_a_job_that_fails_again_on_all_ranks_at_once_has_not_failed_alone(run):
    script = "import time; time.sleep(0.2); open('/nonexistent/checkpoint')"

    ended = run.run("--nodes", "2", "--max-app-retries", "1", "--", sys.executable, "-c", script)

    assert ended.returncode == 1
    assert "FileNotFoundError: [Errno 2] No such file or directory" in run.record().reason
    assert run.record().failure.is_alone is False


def test_a_crash_loop_backs_off(run, tmp_path):
    config = tmp_path / "config.toml"
    config.write_text('[jobs]\napp_backoff = "1s"\n', encoding="utf-8")

    ended = run.run(
        "--config", str(config), "--max-app-retries", "2", "--",
        sys.executable, "-c", "raise SystemExit(1)",
    )  # fmt: skip

    assert ended.returncode == 1
    _, second, third = run.record().attempts
    assert third.started_at - second.stopped_at >= timedelta(seconds=1)
    assert "backing off for 1s after repeated failures of the application" in ended.stdout


def test_a_restart_gets_a_fresh_rendezvous_and_the_next_attempt_number(run):
    script = (
        "import os, sys; print(os.environ['MASTER_PORT'], os.environ['HOLDFAST_ATTEMPT'], "
        "f\"[{os.environ['HOLDFAST_RESTART_REASON']}]\"); "
        "sys.exit(os.environ['HOLDFAST_ATTEMPT'] == '1')"
    )

    ended = run.run("--", sys.executable, "-c", script)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    first, second = (run.dir.log(attempt, 0).read_text().split() for attempt in (1, 2))
    assert (first[1], second[1]) == ("1", "2")
    assert (first[2], second[2]) == ("[]", "[RankExited]")
    assert first[0] != second[0]


def test_an_application_that_keeps_failing_spends_its_own_budget_and_ends_with_the_reason(run):
    ended = run.run("--max-app-retries", "1", "--", sys.executable, "-c", "raise SystemExit(7)")

    assert ended.returncode == 1
    assert "application retries exhausted (1 of 1)" in ended.stdout
    assert "node rank 0 exited with code 7" in ended.stdout
    assert run.record().attempt == 2
    assert run.record().hardware_retries == 0


def test_a_job_that_fails_at_the_same_step_again_and_again_is_stopped_for_it(run, tmp_path):
    config = tmp_path / "config.toml"
    config.write_text('[jobs]\napp_backoff = "0s"\n', encoding="utf-8")
    script = (
        "import os, sys; file = open(os.environ['HOLDFAST_PROGRESS_FILE'], 'a'); "
        "file.write('0\\n5\\n'); sys.exit(1)"
    )

    options = ("--config", str(config), "--max-app-retries", "9")
    ended = run.run(*options, "--", sys.executable, "-c", script)

    assert ended.returncode == 1
    assert "no progress: 3 failures in a row at step 5" in ended.stdout


def test_one_failing_rank_ends_all_ranks_and_what_they_started(run):
    script = (
        "import os, subprocess, sys, time; "
        "subprocess.Popen(['sleep', '600'], start_new_session=True); "
        "time.sleep(0.2 if os.environ['RANK'] == '1' else 600); sys.exit(3)"
    )

    ended = run.run("--nodes", "2", "--max-app-retries", "0", "--", sys.executable, "-c", script)

    assert ended.returncode == 1
    assert run.left_over() == []


def test_a_rank_that_ignores_sigterm_is_killed_after_the_grace_period(run):
    script = (
        "import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "print('up', flush=True); time.sleep(0.3 if os.environ['RANK'] == '1' else 600); "
        "sys.exit(os.environ['HOLDFAST_ATTEMPT'] == '1')"
    )
    script = script.replace("600", "(600 if os.environ['HOLDFAST_ATTEMPT'] == '1' else 0)")

    ended = run.run("--nodes", "2", "--grace", "300ms", "--", sys.executable, "-c", script)

    assert ended.returncode == 0, ended.stdout
    assert "exceeded the grace period" in ended.stdout
    assert run.record().attempt == 2


def test_a_job_that_stops_reporting_steps_is_restarted_where_that_is_watched(run):
    script = (
        "import os, time; file = open(os.environ['HOLDFAST_PROGRESS_FILE'], 'a'); "
        "print('0', file=file, flush=True); "
        "time.sleep(600 if os.environ['HOLDFAST_ATTEMPT'] == '1' else 0)"
    )

    ended = run.run("--hang-timeout", "500ms", "--", sys.executable, "-c", script)

    assert ended.returncode == 0, ended.stdout
    assert "JobHung: no new step was reported for 500ms, last step 0" in ended.stdout
    assert "last step 0, " in ended.stdout


def test_a_startup_that_takes_longer_than_a_hang_is_none_and_what_is_not_watched_is_reported(run):
    script = (
        "import os, time; time.sleep(1); "
        "print('0\\n1', file=open(os.environ['HOLDFAST_PROGRESS_FILE'], 'a'), flush=True)"
    )

    ended = run.run("--hang-timeout", "200ms", "--", sys.executable, "-c", script)

    assert ended.returncode == 0, ended.stdout
    assert run.record().attempt == 1
    assert ended.stdout.count("set --startup-timeout") == 1


def test_a_startup_that_takes_longer_than_it_may_is_a_hang(run):
    script = "import os, time; time.sleep(600 if os.environ['HOLDFAST_ATTEMPT'] == '1' else 0)"

    ended = run.run("--startup-timeout", "500ms", "--", sys.executable, "-c", script)

    assert ended.returncode == 0, ended.stdout
    within = "no new step was reported within 500ms of the start of the attempt"
    assert f"JobHung: {within}" in ended.stdout


def test_json_output_is_one_object_a_line_and_ends_with_the_summary(run):
    ended = run.run("--output", "json", "--", "echo", "hello")

    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert {"event": "job.log", "rank": 0, "line": "hello"} in lines
    assert lines[-1]["event"] == "run.ended"
    assert lines[-1]["outcome"] == "succeeded"
    assert lines[-1]["attempts"] == 1


def test_the_output_of_all_ranks_is_kept_and_shown_on_request(run):
    ended = run.run("--nodes", "2", "--logs", "all", "--", "bash", "-c", "echo I am $RANK")

    assert "rank 0 | I am 0" in ended.stdout
    assert "rank 1 | I am 1" in ended.stdout


def test_nothing_is_missing_of_what_a_talkative_rank_printed_before_it_failed(run):
    script = (
        "import os, sys; attempt = os.environ['HOLDFAST_ATTEMPT']; "
        "print(*(f'{attempt}: {number:090}' for number in range(5000)), sep='\\n', flush=True); "
        "sys.stderr.write(f'why {attempt} failed'); sys.exit(attempt == '1')"
    )

    ended = run.run("--", sys.executable, "-c", script)

    shown = [line for line in ended.stdout.splitlines() if line.startswith("rank 0 |")]
    assert shown == [
        line
        for attempt in (1, 2)
        for line in (
            *(f"rank 0 | {attempt}: {number:090}" for number in range(5000)),
            f"rank 0 | why {attempt} failed",
        )
    ]


def test_a_reader_that_reads_no_more_holds_up_no_restart_and_misses_nothing(run):
    script = (
        "import os, sys; attempt = os.environ['HOLDFAST_ATTEMPT']; "
        "print(*(f'{attempt}: {number:090}' for number in range(5000)), sep='\\n', flush=True); "
        "sys.exit(attempt == '1')"
    )

    run.start("--", sys.executable, "-c", script)
    run.wait_until("the end", lambda: (record := run.record()) and record.phase.is_final)
    code, output = run.finish()

    assert code == 0
    assert [line for line in output.splitlines() if line.startswith("rank 0 |")] == [
        f"rank 0 | {attempt}: {number:090}" for attempt in (1, 2) for number in range(5000)
    ]


def test_a_run_of_an_earlier_name_uses_its_checkpoints_only_where_that_is_asked(run):
    script = (
        'cat "$HOLDFAST_CHECKPOINT_DIR/x" 2>/dev/null; echo saved > "$HOLDFAST_CHECKPOINT_DIR/x"'
    )

    run.run("--", "bash", "-c", script)
    fresh = run.run("--", "bash", "-c", script)
    resumed = run.run("--resume", "--", "bash", "-c", script)

    assert "rank 0 | saved" not in fresh.stdout
    kept = run.home / "runs" / "job.1"
    assert f"are in {kept}/checkpoints" in fresh.stderr
    assert "rank 0 | saved" in resumed.stdout
    assert (kept / "state.db").exists()
    listed = json.loads(run.holdfast("jobs", "list", "--output", "json").stdout)
    assert len({one["id"] for one in listed}) == 3


def test_resume_takes_the_last_job_that_has_checkpoints_and_names_it(run, tmp_path):
    script = 'ls "$HOLDFAST_CHECKPOINT_DIR"'
    other = tmp_path / "other"

    none = run.run("--resume", "--", "bash", "-c", script)
    run.run("--", "bash", "-c", 'touch "$HOLDFAST_CHECKPOINT_DIR/step-1000"')
    saved = json.loads(run.holdfast("jobs", "describe", "job", "-o", "json").stdout)["id"]
    forgotten = run.run("--", "true")
    resumed = run.run("--resume", "--", "bash", "-c", script)
    run.run("--checkpoint-dir", str(other), "--", "bash", "-c", f"touch {other}/elsewhere")
    external = run.run("--resume", "--", "bash", "-c", script)

    assert "no earlier job job has checkpoints; job starts from the beginning" in none.stderr
    assert f"those of the earlier job {saved} are in" in forgotten.stderr
    assert "rank 0 | step-1000" in resumed.stdout
    kept = run.home / "runs" / "job.2"
    assert f"resumes from job {saved}; checkpoints: {kept}/checkpoints" in resumed.stderr
    assert "rank 0 | elsewhere" in external.stdout
    assert f"checkpoints: {other}" in external.stderr
    for job in json.loads(run.holdfast("jobs", "list", "--all", "-o", "json").stdout):
        assert os.path.isdir(job["checkpoint_dir"]), job["id"]


def test_a_job_that_changes_its_directory_finds_its_checkpoints_below_a_relative_home(
    run, tmp_path
):
    run.environment["HOLDFAST_HOME"] = "here"
    script = (
        'cd / && echo kept > "$HOLDFAST_CHECKPOINT_DIR/x" && echo 1 > "$HOLDFAST_PROGRESS_FILE"'
    )

    ended = run.run("--max-app-retries", "0", "--", "bash", "-c", script, cwd=tmp_path)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert (tmp_path / "here/runs/job/checkpoints/x").read_text() == "kept\n"


def test_the_default_name_is_that_of_the_script(run, tmp_path):
    script = tmp_path / "train_it.py"
    script.write_text("print('trained')")

    first = run.holdfast("run", "--boot-time", "0s", "--", sys.executable, str(script))
    second = run.holdfast("run", "--boot-time", "0s", "--", sys.executable, str(script))

    assert first.returncode == second.returncode == 0
    assert {path.name for path in (run.home / "runs").iterdir()} == {"train-it-1", "train-it-2"}


@pytest.mark.parametrize(("option", "wanted"), [("--dry-run", "would run"), ("--help", "Examples")])
def test_asking_what_would_happen_makes_nothing(run, option, wanted):
    ended = run.holdfast("run", option, "--", "true")

    assert ended.returncode == 0
    assert wanted in ended.stdout
    assert not run.home.exists()


@pytest.mark.parametrize("nodes", ["1", "2"])
def test_a_job_that_cannot_start_fails_at_once_and_names_the_remedy(run, nodes):
    ended = run.run("--nodes", nodes, "--", sys.executable, "-c", "import no_such_module")

    assert ended.returncode == 1
    assert run.record().attempt == 1
    assert "a restart would fail in the same way (ImportFailed)" in ended.stdout
    assert "No module named 'no_such_module'" in run.record().reason


def test_a_job_whose_cause_something_else_repairs_is_restarted_if_so_configured(run, tmp_path):
    config = tmp_path / "run.toml"
    config.write_text("[jobs]\nstop_on_permanent_cause = false\n", encoding="utf-8")

    run.run(
        "--config", str(config), "--max-app-retries", "1", "--",
        sys.executable, "-c", "import no_such_module",
    )  # fmt: skip

    assert run.record().attempt == 2


SLOW_TO_END = """
import atexit, os, sys, time
shared = sys.argv[1]
if os.environ["NODE_RANK"] == "0":
    atexit.register(time.sleep, 60)  # such as the other workers of torchrun
    open(shared, "w").close()
    raise OSError(28, "No space left on device")
while not os.path.exists(shared):
    time.sleep(0.05)
raise ConnectionError("Connection closed by peer")
"""


def test_a_rank_that_ends_after_its_peers_is_still_named_as_the_cause(run, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SLOW_TO_END)

    ended = run.run(
        *("--nodes", "2", "--max-app-retries", "2"),
        *("--", sys.executable, str(script), str(tmp_path / "is-full")),
    )

    assert ended.returncode == 1
    assert "a restart would fail in the same way (DiskFull)" in ended.stdout
    first = run.record().attempts[0]
    assert first.failure.node == first.placement[0]
    assert f"(application: RankExited (DiskFull) on {first.placement[0]})" in ended.stdout
    assert [one.failure.cause for one in run.record().attempts] == ["DiskFull"] * 2
