"""Bad input: a clear message, exit code 2, and nothing left behind."""

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--", "no-such-program"], "COMMAND: 'no-such-program' not found in PATH"),
        (["--", "./no/such/file"], "COMMAND: './no/such/file' does not exist"),
        (["--", "/tmp"], "COMMAND: '/tmp' is a directory, expected a program"),
        (["--", "/etc/passwd"], "COMMAND: '/etc/passwd' is not executable"),
        ([], "COMMAND: missing"),
        (["--nodes", "0", "--", "true"], "--nodes: expected 1 or more, got 0"),
        (["--spares", "-1", "--", "true"], "--spares: expected 0 or more, got -1"),
        (["--nproc-per-node", "0", "--", "true"], "--nproc-per-node: expected 1 or more, got 0"),
        (["--nodes", "9" * 23, "--", "true"], "expected 1000 nodes at most"),
        (["--nodes", "900", "--spares", "101", "--", "true"], "expected 1000 nodes at most"),
        (["--hang-timeout", "0s", "--", "true"], "--hang-timeout: expected more than 0s"),
        (["--max-retries", "-1", "--", "true"], "--max-retries: expected 0 or more, got -1"),
        (["--nodes", "two", "--", "true"], "'two' is not a valid integer"),
        (["--grace", "soon", "--", "true"], "'soon' is not a duration such as 90s"),
        (["--master-port", "70000", "--", "true"], "expected a TCP port from 1 to 65535"),
        (["--name", "a/b", "--", "true"], "--name: 'a/b' is not a valid name"),
        (["--checkpoint-dir", "/proc/x", "--", "true"], "--checkpoint-dir: /proc/x cannot be"),
        (["--checkpoint-dir", "/etc/passwd", "--", "true"], "is a file, expected a directory"),
        (["--config", "/no/such.toml", "--", "true"], "/no/such.toml"),
        (["--log-rules", "/no/such.yaml", "--", "true"], "--log-rules: /no/such.yaml: No such"),
        (
            ["--log-rules", "/proc/filesystems", "--", "true"],
            "--log-rules: /proc/filesystems: expected JSON or YAML: ",
        ),
        (["--log-rules", "/dev/null", "--", "true"], "expected a regular file"),
        (
            ["--boot-time", "60s", "--", "true"],
            "no node would report within nodes.join_timeout (1m); expected a nodes.join_timeout of "
            "1m5s or more",
        ),
    ],
)
def test_bad_input_is_named_and_leaves_nothing_behind(run, arguments, message):
    ended = run.holdfast("run", *arguments)

    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not run.home.exists()


def test_rules_in_yaml_without_pyyaml_are_refused_with_what_to_install(run, tmp_path):
    absent = tmp_path / "absent"
    absent.mkdir()
    (absent / "yaml.py").write_text("raise ImportError", encoding="utf-8")
    rules = tmp_path / "rules.yaml"
    rules.write_text("- name: Ticks\n  logPattern: tick\n", encoding="utf-8")
    run.environment["PYTHONPATH"] = str(absent)

    ended = run.holdfast("run", "--log-rules", str(rules), "--", "true")

    assert ended.returncode == 2
    assert "YAML needs PyYAML, which is not installed: pip install pyyaml" in ended.stderr


def test_a_job_for_a_cluster_is_looked_at_as_any_other(run):
    ended = run.holdfast("run", "--cluster", "lab", "--nodes", "0", "--hang-timeout", "0s")

    assert ended.returncode == 2
    reported = (
        "--nodes: expected 1",
        "--hang-timeout: ",
        "COMMAND: missing",
        "--cluster: no cluster",
    )
    assert [word for word in reported if word not in ended.stderr] == []
    assert ended.stderr.count("holdfast: ") == len(reported)


def test_a_job_cannot_begin_in_a_directory_that_is_gone(run, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    leave = 'rmdir "$PWD" && exec "$@"'
    ended = subprocess.run(
        ["sh", "-c", leave, "sh", sys.executable, "-m", "holdfast", "run", "--", "true"],
        cwd=gone, env=run.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert ended.returncode == 2
    assert "holdfast: the current directory was deleted" in ended.stderr
    assert not run.home.exists()


def test_all_mistakes_are_reported_at_once(run):
    ended = run.holdfast("run", "--nodes", "0", "--spares", "-2", "--", "no-such-program")

    assert ended.stderr.count("holdfast: ") == 3


def test_unknown_configuration_keys_are_errors(run, tmp_path):
    config = tmp_path / "holdfast.toml"
    config.write_text('[nodes]\nheartbeat_timout = "3s"\n[machine]\nboot_time = "1s"\n')

    ended = run.holdfast("run", "--config", str(config), "--", "true")

    assert ended.returncode == 2
    assert "nodes.heartbeat_timout" in ended.stderr
    assert "heartbeat_timeout" in ended.stderr.replace("heartbeat_timout", "")
    assert "machine" in ended.stderr
    assert not run.home.exists()


def test_a_port_that_is_taken_is_reported(run):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])

        ended = run.holdfast("run", "--master-port", port, "--", "true")

    assert ended.returncode == 2
    assert f"port {port} is used by another program" in ended.stderr
    assert not run.home.exists()


def test_a_second_run_of_a_name_is_refused_and_the_first_goes_on(run):
    run.start("--", "bash", "-c", "echo up; sleep 600")
    run.wait_for_attempt(1)

    second = run.run("--", "true")

    assert second.returncode == 2
    assert "run 'job' is already active" in second.stderr
    assert run.record().phase == "running"


@pytest.fixture
def full_disk(tmp_path):
    """A file system of 256 KiB that is full, in a mount namespace of its own."""
    probe = subprocess.run(
        ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"], check=False, capture_output=True
    )
    if probe.returncode:
        pytest.skip("needs unprivileged mount namespaces (unshare -rm)")

    def inside(script: str, *, size: str) -> subprocess.CompletedProcess[str]:
        setup = f"mount -t tmpfs -o size={size} none {tmp_path} && cd {Path.cwd()} && {script}"
        return subprocess.run(
            ["unshare", "-rm", "bash", "-c", setup],
            env={**os.environ, "HOLDFAST_HOME": f"{tmp_path}/home"},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    return inside


def test_a_full_disk_is_reported_before_anything_runs(full_disk, tmp_path):
    holdfast = f"{sys.executable} -m holdfast run -- true"

    ended = full_disk(f"{holdfast}; code=$?; ls -A {tmp_path}; exit $code", size="256k")

    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert "no space left on device" in ended.stderr
    assert ended.stdout == ""


FILL = """
cd {folder}
if [ "$HOLDFAST_ATTEMPT" = 1 ]; then head -c 100M /dev/zero >>filler 2>/dev/null; exit 1; fi
"""
"""A rank that fills the disk and fails, in the first attempt."""


RETRIES = "recording the state failed, retrying: no space left on device"

WATCHED = """{{
    exec 3< <(exec {run})
    run=$!
    while IFS= read -r line <&3; do
        echo "$line"
        if [[ $line == *"{retries}"* ]]; then {after}; fi
    done
    wait $run
}}"""


def filled(folder, *, after: str) -> str:
    """A script that runs such a job, and another command once its state cannot be written."""
    rank = FILL.format(folder=folder)
    run = f"{sys.executable} -m holdfast run --nodes 2 --max-app-retries 99 -- bash -c '{rank}'"
    return WATCHED.format(run=run, retries=RETRIES, after=after)


def test_a_run_continues_when_its_full_disk_has_space_again(full_disk, tmp_path):
    ended = full_disk(filled(tmp_path, after=f"rm -f {tmp_path}/filler"), size="4m")

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert RETRIES in ended.stdout
    assert "attempt 2 running" in ended.stdout


def test_a_run_on_a_full_disk_ends_on_request_with_a_message_and_no_process_left(
    full_disk, tmp_path
):
    ended = full_disk(filled(tmp_path, after="kill $run"), size="4m")

    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert "no space left on device" in ended.stderr


def test_a_run_continues_when_its_state_can_be_written_again(tmp_path):
    up, go = tmp_path / "up", tmp_path / "go"
    script = f"touch {up}; until [ -e {go} ]; do sleep 0.1; done; [ $HOLDFAST_ATTEMPT = 2 ]"
    argv = [sys.executable, "-m", "holdfast", "run", "--max-app-retries", "1"]
    environment = {**os.environ, "HOLDFAST_HOME": str(tmp_path / "home")}
    with subprocess.Popen(
        [*argv, "--", "bash", "-c", script], env=environment, stdout=subprocess.PIPE, text=True
    ) as run:
        while not up.exists():
            assert run.poll() is None
            time.sleep(0.1)
        limits = resource.prlimit(run.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(run.pid, resource.RLIMIT_FSIZE, (1, limits[1]))
        go.touch()
        lines = [run.stdout.readline()]
        while "disk I/O error" not in lines[-1]:
            lines.append(run.stdout.readline())
            assert lines[-1], "".join(lines)
        resource.prlimit(run.pid, resource.RLIMIT_FSIZE, limits)
        rest = run.stdout.read()
        assert run.wait(60) == 0, rest
    assert "failed, retrying: " in lines[-1]
    assert "attempt 2 running" in rest


def test_a_job_ends_as_usual_although_its_output_goes_to_a_full_disk(tmp_path):
    argv = [sys.executable, "-m", "holdfast", "run", "--", "bash", "-c", "sleep 1; touch done"]
    environment = {**os.environ, "HOLDFAST_HOME": str(tmp_path / "home"), "PYTHONPATH": os.getcwd()}
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            argv, env=environment, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE,
            text=True, timeout=60, check=False,
        )  # fmt: skip

    assert ended.returncode == 2
    assert "no space left on device for the output: its last lines are missing" in ended.stderr
    assert (tmp_path / "done").exists()


def test_nohup_keeps_a_run_alive_when_its_terminal_closes(tmp_path):
    up, go = tmp_path / "up", tmp_path / "go"
    script = f"touch {up}; until [ -e {go} ]; do sleep 0.1; done"
    argv = ["nohup", sys.executable, "-m", "holdfast", "run", "--", "bash", "-c", script]
    environment = {**os.environ, "HOLDFAST_HOME": str(tmp_path / "home")}
    with subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL) as run:
        while not up.exists():
            assert run.poll() is None
            time.sleep(0.1)
        run.send_signal(signal.SIGHUP)
        time.sleep(1)
        go.touch()
        assert run.wait(60) == 0


SAVES = """
trap "sleep 1; echo saved >{folder}/elsewhere/checkpoint; exit 1" TERM
while head -c 100M /dev/zero >>{folder}/filler 2>/dev/null; sleep 0.1; do :; done & wait $!
"""
"""A rank that keeps the disk full, and saves to another one within a second after SIGTERM."""


def test_a_job_on_a_full_disk_may_save_elsewhere_before_it_ends_on_request(full_disk, tmp_path):
    rank = SAVES.format(folder=tmp_path)
    elsewhere = f"mkdir {tmp_path}/elsewhere; mount -t tmpfs none {tmp_path}/elsewhere"
    run = f"{sys.executable} -m holdfast run -- bash -c '{rank}'"
    full = f"until [ -s {tmp_path}/filler ]; do sleep 0.1; done; sleep 3; kill $run"
    script = f"{elsewhere}; {run} & run=$!; ({full}) & wait $run; cat {tmp_path}/elsewhere/*"

    ended = full_disk(script, size="4m")

    assert "no space left on device" in ended.stderr
    assert ended.stdout.endswith("saved\n"), ended.stdout + ended.stderr


BOOTED_WITHOUT_SPACE = """
import sys
from datetime import timedelta
from pathlib import Path
from holdfast.adapters.local.layout import RunDir
from holdfast.adapters.local.machines import Delays, LocalMachines
from holdfast.adapters.local.node_process import opened_log
from holdfast.adapters.local.store import LocalStore
from holdfast.apps.clock import SystemClock
from holdfast.model.errors import StorageFull

run = RunDir(Path(sys.argv[1]))
run.create()
store = LocalStore(run.state, create=True)
delays, agent = Delays(boot=timedelta(0)), ("sleep", "60")
machines = LocalMachines(run, store, SystemClock(), delays, lambda *_: agent)
filler = []

def fill():
    try:
        while True:
            filler.append(run.path / str(len(filler)))
            filler[-1].mkdir()
    except OSError:
        pass

def refused(call):
    try:
        call()
    except StorageFull as error:
        print(error)

def free():
    for one in filler[:-1]:
        one.rmdir()
    filler.clear()

fill()
refused(machines.add)
free()
machine = machines.add()
fill()
refused(machines.boot_due)
log = opened_log(run.path / "logs" / "rank-0.log")
log.write(b"lost")
free()
machines.boot_due()
print(machine.power)
machines.shut_down()
"""


def test_a_machine_that_finds_no_space_is_tried_again(full_disk, tmp_path):
    script = tmp_path.with_name("without_space.py")
    script.write_text(BOOTED_WITHOUT_SPACE)

    command = f"{sys.executable} {script} {tmp_path}/run 2>/dev/full"
    ended = full_disk(command, size="4m,nr_inodes=60")

    assert ended.returncode == 0, ended.stdout
    assert ended.stdout.count("cannot write") == 2
    assert ended.stdout.endswith("on\n")
