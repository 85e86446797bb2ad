"""Storage of log files that does not respond: the job goes on, and restarts once it does."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from launch.job_of_nodes import Job, ends, running_job
from launch.launched import (
    LIMIT_S,
    launch,
    launcher_of,
    none_runs,
    numbers_in,
    start,
    wait_for,
)

from tests.engines.bad_storage import HungReads, ext4, frozen_writes, tmpfs

pytestmark = pytest.mark.launchers

LEASES_S = 6.0
"""Several leases, and the time in which a guard ends ranks without one."""


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Path]:
    with tmpfs(tmp_path / "storage") as mount:
        yield mount


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    with running_job(tmp_path, "2") as made:
        yield made


@pytest.fixture
def hung(job: Job, storage: Path) -> Iterator[HungReads]:
    """Storage that does not respond since all ranks have started."""
    for rank in range(2):
        job.start("--node-rank", str(rank), "--log-dir", str(storage))
    job.await_round(1)
    reads = HungReads(storage)
    launchers = {launcher_of(guard.pid) for guard in job.guards}
    try:
        wait_for(lambda: launchers <= reads.waiting(), "reads of the logs by each launcher")
        yield reads
    finally:
        reads.respond()


def test_a_job_continues_while_its_logs_cannot_be_read(job: Job, hung: HungReads) -> None:
    ranks = job.ranks(1)

    time.sleep(LEASES_S)

    assert not any(none_runs([rank]) for rank in ranks)
    hung.respond()
    job.finish()
    errors = [guard.communicate(timeout=LIMIT_S)[1] for guard in job.guards]
    assert [guard.returncode for guard in job.guards] == [0, 0]
    assert job.ranks(2) == []
    for printed in errors:
        lines = [line for line in printed.splitlines() if "Storage" in line]
        assert [line.split(": ")[1] for line in lines] == [
            "StorageNotResponding",
            "StorageResponded",
        ]


def test_ranks_restart_once_the_storage_responds(job: Job, hung: HungReads) -> None:
    job.exit_rank(1, 0, 3)
    time.sleep(LEASES_S)
    assert job.ranks(2) == []

    hung.respond()

    job.await_round(2)
    job.finish()
    assert ends(job.guards) == [0, 0]


def test_no_round_starts_before_its_files_are_open(job: Job, storage: Path) -> None:
    for rank in range(2):
        job.start("--node-rank", str(rank), "--log-dir", str(storage))
    job.await_round(1)
    reads = HungReads(storage)
    try:
        job.exit_rank(1, 0, 3)
        wait_for(reads.waiting, "an open file")
        time.sleep(LEASES_S)
        assert job.ranks(2) == []
    finally:
        reads.respond()

    job.await_round(2)
    job.finish()
    assert ends(job.guards) == [0, 0]


SHOWN = """
import os, sys, time
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
print("attempt", attempt, flush=True)
time.sleep(1)
sys.exit(3 if attempt == "0" else 0)
"""


def test_slow_storage_neither_stops_a_job_nor_doubles_its_output(
    tmp_path: Path, storage: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SHOWN, encoding="utf-8")
    reads = HungReads(storage)
    reads.respond_slowly(0.15)  # longer than the launcher waits for a call
    try:
        done = launch("--nproc-per-node", 2, "--log-dir", storage, script)
    finally:
        reads.respond()

    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"[default{rank}]:attempt {attempt}" for rank in (0, 1) for attempt in (0, 1)
    ]


def test_a_signal_ends_all_ranks_while_the_storage_does_not_respond(
    job: Job, hung: HungReads
) -> None:
    ranks = job.ranks(1)

    job.guards[0].terminate()

    wait_for(lambda: none_runs(ranks), "the end of all ranks")
    hung.respond()
    assert ends(job.guards) == [143, 143]


def test_a_round_starts_once_directories_can_be_created(tmp_path: Path) -> None:
    with ext4(tmp_path) as mounted, running_job(tmp_path, "2") as job:
        for rank in range(2):
            job.start("--node-rank", str(rank), "--log-dir", str(mounted))
        job.await_round(1)
        with frozen_writes(mounted):
            job.exit_rank(1, 0, 3)
            time.sleep(LEASES_S)
            assert job.ranks(2) == []

        job.await_round(2)
        job.finish()
        errors = [guard.communicate()[1] for guard in job.guards]
    assert [guard.returncode for guard in job.guards] == [0, 0]
    assert "does not respond" not in "".join(errors)
    assert "connection to the coordinator lost" not in "".join(errors)


FAILS_LATE = """
import os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
(folder / f"started.{os.environ['TORCHELASTIC_RESTART_COUNT']}.{os.getpid()}").touch()
while not (folder / "fail").exists():
    time.sleep(0.01)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    raise ValueError("shapes differ")
"""


def test_why_a_rank_failed_meanwhile_is_reported(tmp_path: Path, storage: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(FAILS_LATE, encoding="utf-8")
    options = ("--log-dir", storage, "--redirects", 1, "--tee", 0)  # standard error has no file
    guard = start("--nproc-per-node", 1, *options, script, tmp_path)
    wait_for(lambda: list(tmp_path.glob("started.0.*")), "the start of the rank")
    reads = HungReads(storage)
    try:
        wait_for(lambda: launcher_of(guard.pid) in reads.waiting(), "a read of the log")
        (tmp_path / "fail").touch()
        [rank] = tmp_path.glob("started.0.*")
        wait_for(lambda: none_runs([int(rank.suffix[1:])]), "the end of the rank")
        time.sleep(1)  # the launcher has noticed it
    finally:
        reads.respond()
    _, errors = guard.communicate(timeout=LIMIT_S)

    assert guard.returncode == 0, errors
    assert "exit code 1: ValueError: shapes differ" in errors


LEAVES_A_PROCESS = """
import pathlib, subprocess, sys, time
left = subprocess.Popen(["sleep", "600"], start_new_session=True)
path = pathlib.Path(sys.argv[1], "left.part")
path.write_text(f"{left.pid}\\n")
path.rename(path.with_name("left"))
time.sleep(600)
"""


def test_what_a_rank_left_running_is_ended_while_the_storage_does_not_respond(
    tmp_path: Path, storage: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(LEAVES_A_PROCESS, encoding="utf-8")
    options = ("--standalone", "--shutdown-timeout", "200ms", "--log-dir", storage)
    # In a Slurm job, there is no control group whose end would be that of the process.
    guard = start(*options, script, tmp_path, SLURM_JOB_ID="7")
    wait_for(lambda: numbers_in(tmp_path, "left"), "the start of the process")
    reads = HungReads(storage)
    try:
        wait_for(lambda: launcher_of(guard.pid) in reads.waiting(), "a read of the log")
        guard.terminate()
        wait_for(lambda: none_runs(numbers_in(tmp_path, "left")), "the end of the process")
    finally:
        reads.respond()
    guard.communicate(timeout=LIMIT_S)

    assert guard.returncode == 143
