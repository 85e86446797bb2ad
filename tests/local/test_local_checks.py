"""The deep check of a local machine, and what its process is given and lacks."""

import os
import resource
import subprocess
import sys
from contextlib import closing, contextmanager
from datetime import timedelta

import pytest

from holdfast.adapters.local.layout import RunDir
from holdfast.adapters.local.machines import Delays, LocalMachines
from holdfast.adapters.local.store import LocalStore
from holdfast.apps.clock import SystemClock
from holdfast.apps.run.waiting import Waiting
from holdfast.model.errors import BackendError

CLOCK = SystemClock()
BEYOND_BUFFER = {f"LONG_{number}": "x" * (100 << 10) for number in range(15)}
"""Variables of 1.5 MB: a Unix socket holds about 200 kB that are not read yet."""


@pytest.fixture
def run(tmp_path):
    run = RunDir(tmp_path / "run")
    run.create()
    return run


@pytest.fixture
def machines(run):
    with closing(LocalStore(run.state, create=True)) as store:
        delays = Delays(boot=timedelta(0))
        machines = LocalMachines(run, store, CLOCK, delays, lambda *_: ("sleep", "600"))
        yield machines
        machines.shut_down()


@contextmanager
def limited(kind, value):
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (value, hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))


def checked(directory, limit):
    argv = [sys.executable, "-m", "holdfast.adapters.local.node_check", str(directory)]
    return subprocess.run(
        ["prlimit", limit, *argv], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_check_passes(tmp_path):
    ended = checked(tmp_path, "--fsize=unlimited")

    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (0, "disk: passed")
    assert not list(tmp_path.iterdir())


def test_a_disk_without_space_is_not_tested(tmp_path):
    (tmp_path / "check.data").symlink_to("/dev/full")

    ended = checked(tmp_path, "--fsize=unlimited")

    assert ended.returncode == 2, ended.stdout
    assert ended.stdout.splitlines()[-1].startswith("disk: not tested: [Errno 28]")


def test_a_disk_that_cannot_be_written_fails(tmp_path):
    ended = checked(tmp_path, "--fsize=4096")

    assert ended.returncode == 1, ended.stdout
    assert ended.stdout.splitlines()[-1].startswith("disk: [Errno 27]")


def test_a_machine_that_lacks_memory_is_not_failed(tmp_path):
    ended = checked(tmp_path, "--as=120000000")

    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert "memory: not tested: no memory is left" in ended.stdout


def test_a_machine_that_cannot_be_started_is_tried_again(machines):
    machine = machines.add()
    open_files = len(os.listdir("/proc/self/fd"))
    with limited(resource.RLIMIT_NOFILE, open_files), pytest.raises(BackendError, match="cannot"):
        machines.boot_due()

    assert machines.boot_due() is None
    assert machine.channel is not None


def test_an_environment_beyond_the_buffer_of_a_socket_reaches_the_rank(run, machines, tmp_path):
    machine = machines.add()
    machines.boot_due()
    woken, wake = os.pipe()
    with closing(Waiting(run, machines, CLOCK, timedelta(0))) as waiting:
        argv = ["sh", "-c", "test ${#LONG_14} = 102400"]
        machine.launch("task", argv, BEYOND_BUFFER, tmp_path / "log")
        while machine.task.exit_code is None:
            waiting.until(CLOCK.now() + timedelta(seconds=60), woken)
    os.close(woken)
    os.close(wake)

    assert machine.task.exit_code == 0, (tmp_path / "log").read_text()
