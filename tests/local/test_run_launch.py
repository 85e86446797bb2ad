"""``holdfast launch`` in the nodes of a run on this machine."""

import os
import shutil
import signal
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.adapters.local.faults import power_off, write_kernel_line, xid_line
from holdfast.kit.processes import descendants
from holdfast.model.jobs import JobPhase
from tests.engines.matrix import outcome_of
from tools.fault_matrix import LOCAL

COLUMN = f"{LOCAL}/processes"

LAUNCHED = """
import os, pathlib, sys, time
folder = pathlib.Path(os.environ["HOLDFAST_CHECKPOINT_DIR"])
number, rank, now = os.environ["HOLDFAST_LAUNCH_ROUND"], os.environ["RANK"], time.time_ns
name = ".".join((os.environ["HOLDFAST_ATTEMPT"], number, rank))
key = os.environ["MASTER_PORT"]
alive = folder / "alive" / f"{name}.{key}.{os.getpid()}"
alive.parent.mkdir(exist_ok=True)
alive.touch()
for other in alive.parent.iterdir():
    *_, port, pid = other.name.split(".")
    is_there = os.path.exists(f"/proc/{pid}/stat") and " Z " not in open(f"/proc/{pid}/stat").read()
    if port != key and is_there and folder.name in open(f"/proc/{pid}/environ").read():
        (folder / "two-rounds").write_text(f"{alive.name} beside {other.name}")
(folder / name).write_text(os.environ["PET_NODE_REPORT"])
while not (folder / "finish").exists():
    if (folder / f"exit.{name}").exists():
        sys.exit(5)
    time.sleep(0.01)
"""


class LaunchedRun:
    """A run of ``holdfast launch`` on two nodes of two ranks each."""

    def __init__(self, run, script, spares, *options):
        self.run, self.folder = run, script.with_name("checkpoints")
        self.folder.mkdir(exist_ok=True)
        script.write_text(LAUNCHED, encoding="utf-8")
        places = ("--nodes", "2", "--spares", str(spares), "--nproc-per-node", "2", *options)
        places = (*places, "--checkpoint-dir", str(self.folder))
        run.start(*places, "--", sys.executable, "-m", "holdfast", "launch", str(script))

    def wait_for_round(self, number, attempt=1):
        """All ranks of a round have started."""
        self.run.wait_until(
            f"round {number} of attempt {attempt}",
            lambda: len(list(self.folder.glob(f"{attempt}.{number}.*"))) == 4,
        )

    def node(self, rank):
        return self.run.dir.node(self.run.record().placement[rank])

    def wait_for_attempt(self, number):
        """The attempt runs, with all of its ranks placed."""

        def runs():
            record = self.run.record()
            return record.attempt == number and record.phase is JobPhase.RUNNING

        self.run.wait_until(f"attempt {number}", runs)

    def log(self, attempt=1, rank=0):
        return self.run.dir.log(attempt, rank).read_text()

    def finish(self):
        """Let the job succeed; returns its record."""
        (self.folder / "finish").touch()
        assert self.run.finish()[0] == 0
        assert not (self.folder / "two-rounds").exists(), (self.folder / "two-rounds").read_text()
        return self.run.record()


@pytest.fixture
def launched(run, tmp_path):
    return lambda spares, *options: LaunchedRun(run, tmp_path / "train.py", spares, *options)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_lost_node_is_exchanged_and_the_launcher_of_the_other_one_stays(
    run, launched, rank, matrix
):
    job = launched(1)
    job.wait_for_round(1)
    (job.folder / "exit.1.1.3").touch()
    job.wait_for_round(2)
    before = run.record()
    assert (before.attempt, before.app_retries) == (1, 0)
    kept = run.pids(before.placement[1 - rank])["task"]
    run.wait_for_spare()

    began = time.monotonic()
    power_off(job.node(rank))
    job.wait_for_round(3)
    seconds = {"resumed": time.monotonic() - began}
    job.wait_for_attempt(2)

    record = run.record()
    assert run.pids(record.placement[1 - rank])["task"] == kept
    assert record.placement[1 - rank] == before.placement[1 - rank]
    assert [one.node for one in record.exchanged] == [before.placement[rank]]
    assert (record.hardware_retries, record.app_retries) == (1, 0)
    assert "RoundStarted: round 3" in job.log(2)
    if rank:  # else the new coordinator waits for the leases of the one that was lost
        outcome = outcome_of(record, rung="another-node")
        matrix.record("launch-power-loss", COLUMN, outcome, seconds)
    assert job.finish().attempt == 2


def test_two_lost_nodes_restart_the_job_if_there_is_one_spare(run, launched):
    job = launched(1)
    job.wait_for_round(1)
    run.wait_for_spare()
    names = run.record().placement
    for name in names:
        power_off(run.dir.node(name))
    job.wait_for_round(1, attempt=run.wait_until("a restart", lambda: restarted(run)))

    assert job.finish().exchanged == ()


def test_a_second_fault_during_the_exchange_is_exchanged_too(run, launched):
    job = launched(2)
    job.wait_for_round(1)
    run.wait_for_spare()
    first = run.record().placement
    power_off(job.node(1))
    second = run.wait_until("the exchange", lambda: other_node(run, 1, first[1]))
    power_off(run.dir.node(second))
    job.wait_for_round(2)
    job.wait_for_attempt(3)

    record = job.finish()
    assert record.placement[0] == first[0]
    assert [one.node for one in record.exchanged] == [first[1], second]
    assert record.hardware_retries == 2


def test_without_a_spare_the_whole_job_restarts(run, launched, matrix):
    job = launched(0)
    job.wait_for_round(1)
    began = time.monotonic()
    power_off(job.node(1))
    job.wait_for_round(1, attempt=2)
    seconds = {"resumed": time.monotonic() - began}
    job.wait_for_attempt(2)
    outcome = outcome_of(run.record(), rung="whole-job")
    matrix.record("launch-no-spare", COLUMN, outcome, seconds)

    record = job.finish()
    assert (record.exchanged, record.hardware_retries) == ((), 1)


@pytest.mark.parametrize(("rank", "hangs"), [(0, False), (0, True), (1, True)])
def test_a_faulty_node_is_exchanged_also_if_its_launcher_hangs(run, launched, rank, hangs):
    job = launched(1, "--grace", "500ms")
    job.wait_for_round(1)
    run.wait_for_spare()
    first = run.record().placement
    for pid in launcher_processes(run, first[rank]) if hangs else ():
        os.kill(pid, signal.SIGSTOP)
    write_kernel_line(
        job.node(rank),
        xid_line(74, "0000:b9:00", "some text"),
        now=datetime.now(UTC),
        since_boot=timedelta(seconds=100),
    )
    job.wait_for_round(2)
    job.wait_for_attempt(2)

    record = job.finish()
    assert record.placement[1 - rank] == first[1 - rank]
    assert [one.node for one in record.exchanged] == [first[rank]]
    assert record.hardware_retries == 1


def test_a_run_that_is_killed_during_an_exchange_leaves_nothing_and_starts_again(run, launched):
    job = launched(1)
    job.wait_for_round(1)
    run.wait_for_spare()
    first = run.record().placement
    power_off(job.node(1))
    run.wait_until("the exchange", lambda: other_node(run, 1, first[1]))
    run.process.kill()
    run.stop()
    run.wait_for_nothing_left()
    shutil.rmtree(job.folder)

    job = launched(1)
    job.wait_for_round(1)

    assert job.finish().exchanged == ()


def restarted(run):
    record = run.record()
    whole = record.phase is JobPhase.RUNNING and not record.exchanged and record.attempt > 1
    return record.attempt if whole else None


def other_node(run, rank, before):
    placement = run.record().placement
    return placement[rank] if len(placement) > rank and placement[rank] != before else None


def launcher_processes(run, node):
    """Guard and launcher of a node."""
    guard = run.pids(node)["task"]
    return [guard, *descendants(guard)]
