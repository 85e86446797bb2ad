"""Launchers whose standard error is a full pipe that nobody reads for now."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from launch.job_of_nodes import KEY, LEASE, Job, running_job
from launch.launched import (
    LIMIT_S,
    clean_environment,
    command,
    launcher_of,
    none_runs,
    numbers_in,
    wait_for,
)

from holdfast.apps.launch.stderr_relay import StderrRelay
from tests.engines.ports import free_port

pytestmark = pytest.mark.launchers

FILLER = b"-"

TRAIN = """
import os, pathlib, sys, time
folder, attempt = pathlib.Path(sys.argv[1]), os.environ["TORCHELASTIC_RESTART_COUNT"]
os.write(2, f"attempt {attempt}\\n".encode())
(folder / f"started.{attempt}").write_text(f"{os.getpid()}\\n")
if int(attempt) < 3:
    raise ValueError(attempt)
while not (folder / "finish").exists():
    time.sleep(0.01)
"""


class FullPipe:
    """A pipe without room for one more byte."""

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe()
        os.set_blocking(self.writer, False)
        try:
            while True:
                os.write(self.writer, FILLER)
        except BlockingIOError:
            os.set_blocking(self.writer, True)
        self._text = b""
        self._thread = threading.Thread(target=self._read)

    def begin(self) -> None:
        """Read from now on, to the end of the last writer."""
        os.close(self.writer)
        self._thread.start()

    def text(self) -> str:
        self._thread.join(LIMIT_S)
        return self._text.decode().lstrip(FILLER.decode())

    def _read(self) -> None:
        while data := os.read(self._reader, 65536):
            self._text += data
        os.close(self._reader)


def start(pipe: FullPipe, *arguments: object, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*arguments),
        env=clean_environment(**variables),
        stderr=pipe.writer,
        encoding="utf-8",
    )


def test_ranks_restart_and_no_message_is_lost(tmp_path: Path) -> None:
    path, pipe = tmp_path / "train.py", FullPipe()
    path.write_text(TRAIN, encoding="utf-8")
    launcher = start(pipe, path, tmp_path)
    wait_for(lambda: numbers_in(tmp_path, "started.3"), "the third restart")
    pipe.begin()
    (tmp_path / "finish").touch()

    assert launcher.wait(LIMIT_S) == 0
    lines = re.findall(
        r"^attempt \d|^ValueError: \d|RankFailed|RanksRestarted|JobSucceeded", pipe.text(), re.M
    )
    expected = []
    for attempt in range(3):
        expected += [f"attempt {attempt}", f"ValueError: {attempt}", "RankFailed", "RanksRestarted"]
    assert lines == [*expected, "attempt 3", "JobSucceeded"]


MANY = """
import os, pathlib, sys, time
folder, attempt = pathlib.Path(sys.argv[1]), os.environ["TORCHELASTIC_RESTART_COUNT"]
(folder / f"started.{attempt}.{os.environ['RANK']}").write_text("1\\n")
if attempt == "0":
    while not (folder / "fail").exists():
        time.sleep(0.01)
    sys.exit("failed")
"""


@pytest.mark.parametrize("has_logs", [False, True])
def test_a_launcher_keeps_its_lease_when_many_ranks_fail_at_once(
    tmp_path: Path, *, has_logs: bool
) -> None:
    path, pipe = tmp_path / "train.py", FullPipe()
    path.write_text(MANY, encoding="utf-8")
    meeting = ("--nnodes", "1:2", "--rdzv-endpoint", f"127.0.0.1:{free_port()}")
    options = (*meeting, "--lease-timeout", "2s", "--nproc-per-node", 16)
    options = (*options, "--log-dir", tmp_path / "logs") if has_logs else options
    launcher = start(pipe, *options, path, tmp_path, HOLDFAST_LAUNCH_KEY=KEY)
    wait_for(lambda: len(numbers_in(tmp_path, "started.0.*")) == 16, "the start")
    os.kill(launcher_of(launcher.pid), signal.SIGSTOP)  # it sees all ends at once
    (tmp_path / "fail").touch()
    time.sleep(1)
    os.kill(launcher_of(launcher.pid), signal.SIGCONT)
    wait_for(lambda: len(numbers_in(tmp_path, "started.1.*")) == 16 or launcher.poll(), "restart")
    pipe.begin()

    assert launcher.wait(LIMIT_S) == 0
    assert "RanksRestarted: in-place" in pipe.text()


def test_messages_follow_what_ranks_have_written_before(capfd: pytest.CaptureFixture[str]) -> None:
    with StderrRelay() as relay, relay.open(0) as rank:
        for number in range(500):
            rank.write(f"rank {number}\n".encode())
            sys.stderr.write(f"launcher {number}\n")

    shown = [f"{who} {number}" for number in range(500) for who in ("rank", "launcher")]
    assert capfd.readouterr().err.splitlines() == shown


@contextmanager
def job_with_full_pipe(folder: Path, rank: int) -> Iterator[tuple[Job, FullPipe]]:
    """A job of two nodes, where a hot spare may join; the launcher of one has a full pipe."""
    pipe = FullPipe()
    with running_job(folder, "2:3") as job:
        for number in range(2):
            if number != rank:
                job.start("--node-rank", str(number))
                continue
            meeting = ("--nnodes", job.nnodes, "--rdzv-endpoint", job.endpoint, "--node-rank", rank)
            times = ("--lease-timeout", LEASE, "--shutdown-timeout", "200ms")
            arguments = (*meeting, *times, "--nproc-per-node", 2, job.script, job.folder)
            job.guards.append(start(pipe, *arguments, HOLDFAST_LAUNCH_KEY=KEY))
        job.await_round(1)
        yield job, pipe


def test_a_coordinator_renews_leases_and_restarts_ranks(tmp_path: Path) -> None:
    with job_with_full_pipe(tmp_path, 0) as (job, pipe):
        for number in (1, 2):
            job.exit_rank(number, 3, 7)
            job.await_round(number + 1)
        pipe.begin()
        job.finish()

        assert job.guards[0].wait(LIMIT_S) == 0
        assert re.findall("RoundStarted: round (.)|(JobSucceeded)", pipe.text()) == [
            ("1", ""), ("2", ""), ("3", ""), ("", "JobSucceeded"),
        ]  # fmt: skip


def test_a_guard_ends_the_ranks_of_a_launcher_that_hangs(tmp_path: Path) -> None:
    with job_with_full_pipe(tmp_path, 1) as (job, pipe):
        old = [pid for pid in job.ranks(1) if job.node_of(pid) is job.guards[1]]
        assert len(old) == 2
        job.start("--node-rank", "2")
        os.kill(launcher_of(job.guards[1].pid), signal.SIGSTOP)
        wait_for(lambda: none_runs(old), "the end of the ranks")
        job.await_round(2)
        pipe.begin()
        job.finish()

        assert job.guards[1].wait(LIMIT_S) == 128 + signal.SIGKILL
        assert "the launcher does not respond; ending its ranks" in pipe.text()
