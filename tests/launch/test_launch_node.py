"""``holdfast launch`` on one node, with real processes."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from launch.launched import (
    LIMIT_S,
    clean_environment,
    command,
    launch,
    launcher_of,
    none_runs,
    numbers_in,
    start,
    wait_for,
)

pytestmark = pytest.mark.launchers

PID_FILE = """
import os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
attempt, rank = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"]
def note(name, pid):
    (folder / f"{name}.{attempt}.{rank}").write_text(f"{pid}\\n", encoding="utf-8")
note("rank", os.getpid())
"""

FAIL_ONCE = f"""{PID_FILE}
if attempt == "0" and rank == "1":
    sys.exit(7)
if attempt == "0":
    time.sleep(600)
"""


def script(folder: Path, text: str) -> Path:
    path = folder / "train.py"
    path.write_text(text, encoding="utf-8")
    return path


WAIT_FOR_MANIFEST = """
import os, pathlib, sys, time
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    sys.exit(7)
folder = pathlib.Path(os.environ["HOLDFAST_CHECKPOINT_DIR"])
while len(list(folder.parent.glob(f".{folder.name}.holdfast-manifest.*"))) < 2:
    time.sleep(0.05)
"""
"""The newest checkpoint is verified first, and reported before the next one is read."""


def test_saves_are_verified_in_the_background_across_restarts(tmp_path: Path) -> None:
    folder = tmp_path / "ckpt"
    folder.mkdir()
    header = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    weights = len(header).to_bytes(8, "little") + header + b"\x00\x00\xc0\x7f"
    for step in (1, 2):
        saved = folder / f"checkpoint-{step}"
        saved.mkdir()
        (saved / "model.safetensors").write_bytes(weights)
        (saved / "trainer_state.json").write_text(f'{{"global_step": {step}}}')
        for path in (*saved.iterdir(), saved):
            os.utime(path, (1_700_000_000 + step, 1_700_000_000 + step))

    path = script(tmp_path, WAIT_FOR_MANIFEST)
    done = launch("--nproc-per-node", 2, path, HOLDFAST_CHECKPOINT_DIR=str(folder))

    assert done.returncode == 0, done.stderr
    assert "checkpoint-2: complete, but suspected" in done.stderr


@pytest.mark.smoke
def test_ranks_get_the_variables_of_torchrun_and_of_frameworks(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        "import json, os, sys\n"
        "with open(f\"{sys.argv[1]}/{os.environ['RANK']}.json\", 'w') as file:\n"
        "    json.dump(dict(os.environ), file)\n",
    )
    done = launch("--nproc-per-node", 2, "--rdzv-id", "job7", path, tmp_path)
    assert done.returncode == 0, done.stderr

    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    expected = {
        "LOCAL_RANK": "1",
        "RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": "default",
        "ROLE_RANK": "1",
        "ROLE_WORLD_SIZE": "2",
        "NODE_RANK": "0",
        "LOCAL_SIZE": "2",
        "CROSS_RANK": "0",
        "CROSS_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "3",
        "TORCHELASTIC_RUN_ID": "job7",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "OMP_NUM_THREADS": "1",
    }
    assert expected.items() <= second.items()
    assert first["MASTER_PORT"] == second["MASTER_PORT"]
    assert second["JAX_COORDINATOR_ADDRESS"] == f"127.0.0.1:{second['MASTER_PORT']}"
    assert not Path(second["TORCHELASTIC_ERROR_FILE"]).exists()


@pytest.mark.smoke
def test_a_failed_rank_restarts_all_ranks_in_place(tmp_path: Path) -> None:
    done = launch("--nproc-per-node", 2, script(tmp_path, FAIL_ONCE), tmp_path)

    assert done.returncode == 0, done.stderr
    assert len(numbers_in(tmp_path, "rank.1.*")) == 2
    assert none_runs(numbers_in(tmp_path, "rank.*"))
    assert "RankFailed: round 1: rank 1" in done.stderr
    assert "RanksRestarted: in-place (restarts in place: 1, limit 3): exit code 7" in done.stderr


def test_the_job_fails_when_its_restarts_are_exhausted(tmp_path: Path) -> None:
    path = script(tmp_path, f"{PID_FILE}\nraise ValueError('bad shape')")
    done = launch("--max-restarts", 2, "--log-dir", tmp_path / "logs", path, tmp_path)

    assert done.returncode == 1
    assert len(numbers_in(tmp_path, "rank.*")) == 3
    assert "ValueError: bad shape" in done.stderr
    assert "JobFailed: restarts in place exhausted (2 of 2)" in done.stderr


def test_more_than_50_restarts_in_place_are_possible(tmp_path: Path) -> None:
    path = tmp_path / "count.sh"
    path.write_text('echo >> "$1"; test "$(wc -l < "$1")" -gt 60')
    done = launch("--max-restarts", 60, "--no-python", "sh", path, tmp_path / "lines")

    assert done.returncode == 0, done.stderr[-500:]
    assert "RanksRestarted: in-place (restarts in place: 60, limit 60)" in done.stderr


def test_a_total_ends_the_job_before_its_other_budgets() -> None:
    done = launch("--max-restarts", 9, "--max-total-restarts", 1, "--no-python", "false")

    assert done.returncode == 1
    assert "JobFailed: restarts exhausted (1 of 1)" in done.stderr


@pytest.mark.parametrize(
    ("options", "variables", "code"),
    [
        (("--max-job-restarts", "2"), {"HOLDFAST_ATTEMPT": "2"}, 75),
        (("--max-job-restarts", "2"), {"HOLDFAST_ATTEMPT": "3"}, 1),
        (("--max-job-restarts", "2"), {"SLURM_RESTART_COUNT": "1"}, 75),
        (("--max-job-restarts", "2"), {"SLURM_RESTART_COUNT": "2"}, 1),
    ],
)
def test_the_platform_is_asked_to_restart_the_job_within_its_budget(
    options: tuple[str, ...], variables: dict[str, str], code: int
) -> None:
    done = launch("--max-restarts", 0, *options, "--no-python", "false", **variables)

    assert done.returncode == code


@pytest.mark.parametrize(
    ("rank_code", "options", "code", "starts"),
    [
        (93, (), 93, 1),
        (42, ("--exit-codes", "42=stop"), 42, 1),
        (93, ("--exit-codes", "93=crash", "--max-restarts", "1"), 1, 2),
    ],
)
def test_an_exit_code_may_forbid_restarts(
    tmp_path: Path, rank_code: int, options: tuple[str, ...], code: int, starts: int
) -> None:
    path = script(tmp_path, f"{PID_FILE}\nsys.exit({rank_code})")
    done = launch(*options, path, tmp_path)

    assert done.returncode == code
    assert len(numbers_in(tmp_path, "rank.*")) == starts


def test_why_megatron_asks_for_another_accelerator_is_read_in_its_result_file(tmp_path) -> None:
    script, results = tmp_path / "train.py", tmp_path / "results"
    script.write_text(
        "import os, sys\n"
        "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
        "    open(sys.argv[2], 'a').write('ts=1 node=n device=3 jobID=7 rank=0 iteration=9 '\n"
        "        \"status=first_rerun_reproducible result=nan message='loss is nan'\\n\")\n"
        "    sys.exit(16)\n",
        encoding="utf-8",
    )
    done = launch(script, "--result-rejected-tracker-filename", results)

    assert done.returncode == 0, done.stderr
    assert (
        "exit code 16: iteration 9 on device 3 of n: the rerun had the same result, rerunning on "
        "another accelerator (loss is nan)"
    ) in done.stderr


def test_after_exit_code_16_ranks_get_other_gpus(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        f"{PID_FILE}\n"
        "note('gpus', os.environ['CUDA_VISIBLE_DEVICES'].replace(',', ''))\n"
        "sys.exit(16 if attempt == '0' else 0)",
    )
    done = launch(path, tmp_path, CUDA_VISIBLE_DEVICES="4,5,6")

    assert done.returncode == 0, done.stderr
    assert numbers_in(tmp_path, "gpus.*") == [456, 564]


ORPHANS = f"""{PID_FILE}
import signal, subprocess
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
pid = subprocess.Popen([sys.executable, "-c", child], start_new_session=True).pid
note("orphan", pid)
"""


def test_a_restart_ends_processes_in_other_sessions_before_new_ranks_start(tmp_path: Path) -> None:
    text = f"""{ORPHANS}
if attempt == "0":
    sys.exit(1)
old = int((folder / "orphan.0.0").read_text())
note("gone", int(not os.path.exists(f"/proc/{{old}}")))
"""
    done = launch(script(tmp_path, text), tmp_path)

    assert done.returncode == 0, done.stderr
    assert numbers_in(tmp_path, "gone.*") == [1]
    assert none_runs(numbers_in(tmp_path, "orphan.*"))


def running(tmp_path: Path, *options: object, ranks: int = 2) -> subprocess.Popen[str]:
    """Ranks that ignore SIGTERM, each with a child in a session of its own."""
    path = script(tmp_path, f"{ORPHANS}\ntime.sleep(600)")
    started = start("--nproc-per-node", ranks, *options, path, tmp_path)
    wait_for(lambda: len(numbers_in(tmp_path, "orphan.*")) == ranks, "the start of the ranks")
    return started


def all_pids(folder: Path) -> list[int]:
    return numbers_in(folder, "rank.*") + numbers_in(folder, "orphan.*")


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_ends_ranks_that_ignore_it_after_the_grace_period(
    tmp_path: Path, signum: signal.Signals
) -> None:
    launcher = running(tmp_path, "--shutdown-timeout", "200ms")
    launcher.send_signal(signum)
    _, errors = launcher.communicate(timeout=LIMIT_S)

    assert launcher.returncode == 128 + signum
    assert none_runs(all_pids(tmp_path))
    assert f"JobStopped: signal {signum.value}" in errors


def test_signals_that_the_caller_ignores_do_not_end_a_job(tmp_path: Path) -> None:
    text = f"""{PID_FILE}
import signal
note("default", int(signal.getsignal(signal.SIGHUP) is signal.SIG_DFL))
while not (folder / "finish").exists():
    time.sleep(0.01)
"""
    shell = ("sh", "-c", 'trap "" HUP; exec "$@"', "sh")  # as ``nohup``
    arguments = (*shell, *command(script(tmp_path, text), tmp_path))
    guard = subprocess.Popen(arguments, env=clean_environment())
    wait_for(lambda: numbers_in(tmp_path, "default.*"), "the start")
    for pid in (guard.pid, launcher_of(guard.pid)):
        os.kill(pid, signal.SIGHUP)
    time.sleep(0.5)
    (tmp_path / "finish").touch()

    assert guard.wait(LIMIT_S) == 0
    assert numbers_in(tmp_path, "default.*") == [1]


def test_ranks_get_the_signal_that_the_launcher_got(tmp_path: Path) -> None:
    text = f"""{PID_FILE}
import signal
def caught(number, _):
    note(f"caught{{number}}", number)
    if number != signal.SIGUSR1:
        sys.exit(0)
for number in (signal.SIGUSR1, signal.SIGINT):
    signal.signal(number, caught)
note("ready", 1)
while True:
    time.sleep(0.01)
"""
    launcher = start(script(tmp_path, text), tmp_path)
    wait_for(lambda: numbers_in(tmp_path, "ready.*"), "the start")
    launcher.send_signal(signal.SIGUSR1)
    wait_for(lambda: numbers_in(tmp_path, "caught10.*"), "SIGUSR1")
    assert launcher.poll() is None
    launcher.send_signal(signal.SIGINT)
    launcher.communicate(timeout=LIMIT_S)

    assert launcher.returncode == 128 + signal.SIGINT
    assert numbers_in(tmp_path, "caught2.*") == [signal.SIGINT]


def test_the_guard_ends_all_processes_of_a_killed_launcher(tmp_path: Path) -> None:
    guard = running(tmp_path)
    os.kill(launcher_of(guard.pid), signal.SIGKILL)
    _, errors = guard.communicate(timeout=LIMIT_S)

    assert guard.returncode == 128 + signal.SIGKILL
    assert none_runs(all_pids(tmp_path))
    assert "launcher ended by signal 9" in errors


def test_the_launcher_ends_all_processes_when_its_guard_is_killed(tmp_path: Path) -> None:
    guard = running(tmp_path, "--shutdown-timeout", "200ms")
    guard.kill()
    guard.communicate(timeout=LIMIT_S)

    wait_for(lambda: none_runs(all_pids(tmp_path)), "the end of the ranks")


HANG = f"""{PID_FILE}
first = attempt == "0"
time.sleep(1.5 if first else 0)  # longer than the timeout: a start has no limit
for step in range(3):
    with open(os.environ["HOLDFAST_PROGRESS_FILE"], "a") as file:
        file.write(f"{{step}}\\n")
    time.sleep(0.1)
if first and rank == "1":
    time.sleep(600)
if first:
    while True:
        with open(os.environ["HOLDFAST_PROGRESS_FILE"], "a") as file:
            file.write("3\\n")
        time.sleep(0.1)
"""


def test_a_rank_that_makes_no_more_progress_restarts_all_ranks(tmp_path: Path) -> None:
    path = script(tmp_path, HANG)
    done = launch("--nproc-per-node", 2, "--hang-timeout", "1s", path, tmp_path)

    assert done.returncode == 0, done.stderr
    assert "round 1: rank 1 on" in done.stderr
    assert "no progress for 1s" in done.stderr
    assert len(numbers_in(tmp_path, "rank.*")) == 4


def test_a_stopped_rank_is_continued_so_that_it_can_end(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        f"""{PID_FILE}
import signal
def end(*_):
    note("ended", 1)
    os._exit(0)
signal.signal(signal.SIGTERM, end)
if attempt == "0":
    with open(os.environ["HOLDFAST_PROGRESS_FILE"], "a") as file:
        file.write("0\\n")
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(600)
""",
    )
    done = launch("--hang-timeout", "500ms", path, tmp_path)

    assert done.returncode == 0, done.stderr
    assert len(numbers_in(tmp_path, "ended.0.*")) == 1


def test_a_step_that_is_reported_while_other_ranks_start_counts() -> None:
    shell = """
    [ "$TORCHELASTIC_RESTART_COUNT" = 0 ] || exit 0
    [ "$RANK" != 0 ] || echo 0 >>"$HOLDFAST_PROGRESS_FILE"
    exec sleep 600
    """
    options = ("--nproc-per-node", 16, "--hang-timeout", "1s", "--no-python")
    done = launch(*options, "sh", "-c", shell, limit_s=60)

    assert done.returncode == 0, done.stderr
    assert "no progress for 1s" in done.stderr


def test_a_rank_that_never_reports_progress_is_not_watched(tmp_path: Path) -> None:
    path = script(tmp_path, f"{PID_FILE}\ntime.sleep(1)")
    done = launch("--hang-timeout", "100ms", path, tmp_path)

    assert done.returncode == 0, done.stderr
    assert len(numbers_in(tmp_path, "rank.*")) == 1


def test_each_rank_and_attempt_has_its_files(tmp_path: Path) -> None:
    text = f"""{PID_FILE}
print("out", rank)
print("err", file=sys.stderr)
note("printed", 1)
while len(list(folder.glob(f"printed.{{attempt}}.*"))) < 2:  # the other one may be starting
    time.sleep(0.01)
sys.exit(attempt == "0")
"""
    logs = tmp_path / "logs"
    done = launch("--nproc-per-node", 2, "--log-dir", logs, script(tmp_path, text), tmp_path)

    assert done.returncode == 0, done.stderr
    for attempt in (0, 1):
        for rank in (0, 1):
            folder = logs / "none" / f"attempt_{attempt}" / str(rank)
            assert (folder / "stdout.log").read_text() == f"out {rank}\n"
            assert (folder / "stderr.log").read_text() == "err\n"
    assert sorted(done.stdout.splitlines()) == sorted(["[default0]:out 0", "[default1]:out 1"] * 2)
    assert done.stderr.count("[default1]:err") == 2


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ((), "out 0out 1"),
        (("--redirects", "3"), ""),
        (("--tee", "1"), "[default0]:out 0[default1]:out 1"),
        (("--tee", "1", "--local-ranks-filter", "1"), "[default1]:out 1"),
        (("--local-ranks-filter", "0"), "out 0"),
    ],
)
def test_options_select_the_output_that_is_shown(
    tmp_path: Path, options: tuple[str, ...], shown: str
) -> None:
    text = "import os; os.write(1, f\"out {os.environ['RANK']}\\n\".encode())"
    done = launch("--nproc-per-node", 2, *options, script(tmp_path, text))

    assert done.returncode == 0, done.stderr
    assert "".join(sorted(done.stdout.splitlines())) == shown


def test_modules_and_programs_run_like_scripts(tmp_path: Path) -> None:
    module = launch("-m", "json.tool", "--help")
    program = launch("--no-python", "sh", "-c", "echo rank $RANK of $WORLD_SIZE")

    assert "json" in module.stdout
    assert program.stdout == "rank 0 of 1\n"


def test_a_program_that_cannot_be_executed_is_named(tmp_path: Path) -> None:
    done = launch("--max-restarts", 0, "--no-python", tmp_path / "none")

    assert done.returncode == 1
    assert f"cannot run '{tmp_path}/none': No such file or directory" in done.stderr


def test_the_error_file_of_record_names_the_exception(tmp_path: Path) -> None:
    text = """import json, os, sys
message = {"message": {"message": "RuntimeError: out of tensors", "extraInfo": {}}}
with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
    json.dump(message, file)
sys.exit(1)
"""
    done = launch("--max-restarts", 0, script(tmp_path, text))

    assert "exit code 1: RuntimeError: out of tensors" in done.stderr


def test_torchruns_variables_are_defaults_of_its_options() -> None:
    echo = ("--no-python", "sh", "-c", "echo $WORLD_SIZE")
    by_variable = launch(*echo, PET_NPROC_PER_NODE="3")
    by_option = launch("--nproc_per_node=2", *echo, PET_NPROC_PER_NODE="3")

    assert by_variable.stdout.split() == ["3"] * 3
    assert by_option.stdout.split() == ["2"] * 2


@pytest.mark.parametrize(
    ("options", "variables", "problem"),
    [
        (("--nnodes", "0"), {}, "'0': expected N or MIN:MAX"),
        (("--nproc-per-node", "0"), {}, "--nproc-per-node: '0': expected 1 to 4095"),
        (("--nproc-per-node", "many"), {}, "--nproc-per-node: 'many'"),
        (("--max-restarts", "-1"), {}, "--max-restarts"),
        (("--max-restarts", "1001"), {}, "'1001' is not a whole number from 0 to 1000"),
        (("--exit-codes", "16=jump"), {}, "16=jump"),
        (("--shutdown-timeout", "soon"), {}, "soon"),
        (("--local-ranks-filter", "a"), {}, "--local-ranks-filter: 'a'"),
        (("--master-port", "65536"), {}, "65536"),
        (("-m", "--no-python"), {}, "--module and --no-python exclude each other"),
        ((), {"PET_TEE": "9"}, "PET_TEE: '9'"),
        ((), {"PET_MAX_RESTARTS": "x"}, "'x' is not a whole number"),
        (("--unknown", "1"), {}, "--unknown"),
        (("--log-dir", "/proc/none"), {}, "--log-dir: cannot create /proc/none"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(
    options: tuple[str, ...], variables: dict[str, str], problem: str
) -> None:
    done = launch(*options, "--no-python", "echo", "started", **variables)

    assert done.returncode == 2, done.stdout
    assert problem in done.stderr
    assert done.stdout == ""


def test_a_missing_script_is_refused_and_not_restarted() -> None:
    done = launch("nowhere.py")

    assert done.returncode == 2
    assert "script: 'nowhere.py' does not exist; expected a Python script" in done.stderr
    assert "RankFailed" not in done.stderr


def test_no_temporary_directory_is_left(tmp_path: Path) -> None:
    done = launch("--no-python", "true", TMPDIR=str(tmp_path))

    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []
