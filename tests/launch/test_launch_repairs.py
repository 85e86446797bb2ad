"""Launchers on nodes whose agents report faults that need a repair of the node."""

import os
import re
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from launch.agent_at_work import AgentAtWork
from launch.job_of_nodes import Job, ends, running_job
from launch.launched import LIMIT_S, launch, none_runs, numbers_in, wait_for

from holdfast.adapters.host.report_files import ReportFiles
from holdfast.apps.launch.node_watch import NodeWatch
from holdfast.model.report import NodeReport
from tests.engines.matrix import Matrix
from tests.ports.builders import NOW, a_fault

pytestmark = pytest.mark.launchers

COLUMN = "one machine/processes"
REPLACE = 74
REPORT = NodeReport(node="n", boot_id="b", sequence=1, reported_at=NOW, faults=(a_fault(),))


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    with running_job(tmp_path, "2:3") as made:
        yield made


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[list[AgentAtWork]]:
    with ExitStack() as stack:
        yield [stack.enter_context(AgentAtWork(tmp_path / f"node-{number}")) for number in range(3)]


def start_all(job: Job, agents: list[AgentAtWork]) -> list[subprocess.Popen[str]]:
    return [
        job.start("--node-rank", str(rank), "--node-report", str(agents[rank].report))
        for rank in range(int(job.nnodes[-1]))
    ]


def agent_of(job: Job, agents: list[AgentAtWork], number: int, rank: int) -> AgentAtWork:
    """The agent on the node of a rank."""
    [pid] = numbers_in(job.folder, f"rank.{number}.{rank}")
    return agents[job.guards.index(job.node_of(pid))]


def printed(guard: subprocess.Popen[str]) -> list[str]:
    errors = guard.communicate(timeout=LIMIT_S)[1]
    return re.findall(
        r"^holdfast: ((?:RankFailed|RanksRestarted|Job\w+): .*)", errors, re.MULTILINE
    )


def events(lines: list[str]) -> list[str]:
    """Reason codes, without that of the end."""
    return [line.partition(":")[0] for line in lines[:-1]]


def test_ranks_leave_a_node_that_is_being_repaired_for_a_spare(
    job: Job, agents: list[AgentAtWork], matrix: Matrix
) -> None:
    guards = start_all(job, agents)
    job.await_round(1)
    bad = agent_of(job, agents, 1, 3)
    left = job.node_of(numbers_in(job.folder, "rank.1.3")[0])
    began = time.monotonic()
    bad.log_xid(REPLACE)
    job.await_round(2)
    seconds = {"resumed": time.monotonic() - began}
    assert job.node_of(numbers_in(job.folder, "rank.2.3")[0]) is not left
    job.finish()

    failed, restarted, end = lines = printed(guards[0])
    assert re.match(r"RankFailed: round 1: node on \S+: \S+ is being repaired: Nvidia", failed), (
        failed
    )
    assert restarted.startswith("RanksRestarted: spare: "), restarted
    assert end == "JobSucceeded: all ranks succeeded"
    assert ends(guards) == [0, 0, 0]
    outcome = {"job": "running", "rung": "hot-spare", "events": events(lines)}
    matrix.record("launch-repair", COLUMN, outcome, seconds)


def test_a_rank_that_fails_on_a_node_that_is_being_repaired_waits_for_another_launcher(
    job: Job, agents: list[AgentAtWork], matrix: Matrix
) -> None:
    job.nnodes = "2"
    guards = start_all(job, agents)
    job.await_round(1)
    bad = agent_of(job, agents, 1, 3)
    bad.log_xid(REPLACE)
    wait_for(lambda: b'"code": 74' in bad.report.read_bytes(), "the report of the fault")
    assert len(numbers_in(job.folder, "rank.*")) == 4
    job.exit_rank(1, 3, 5)
    wait_for(lambda: none_runs(job.ranks(1)), "the end of all ranks")
    assert job.ranks(2) == []
    guards.append(job.start("--node-report", str(agents[2].report)))
    job.await_round(2)
    job.finish()

    failed, restarted, _ = lines = printed(guards[0])
    assert "exit code 5" in failed
    assert re.match(r"RanksRestarted: exchange: exit code 5; \S+ is being repaired: ", restarted)
    assert ends(guards) == [0, 0, 0]
    outcome = {"job": "running", "rung": "another-node", "events": events(lines)}
    matrix.record("launch-exchange", COLUMN, outcome)


def test_a_job_on_one_node_ends_on_a_node_that_is_being_repaired(
    tmp_path: Path, agents: list[AgentAtWork]
) -> None:
    agents[0].log_xid(REPLACE)
    report = agents[0].report
    wait_for(lambda: b'"code": 74' in report.read_bytes(), "the report of the fault")
    (tmp_path / "once.sh").write_text("#!/bin/sh\nexit 5\n", encoding="utf-8")
    command = ("--no-python", "sh", tmp_path / "once.sh")

    done = launch("--node-report", report, "--max-job-restarts", "1", *command)
    assert done.returncode == 75
    assert re.search(r"JobRestartRequested: \S+ is being repaired: Nvidia", done.stderr)
    assert "RanksRestarted" not in done.stderr
    done = launch("--node-report", "", "--max-restarts", "1", *command)
    assert done.stderr.count("RanksRestarted: in-place") == 1


def test_a_report_that_another_user_can_write_is_ignored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ReportFiles(tmp_path)
    files.publish(REPORT)
    path = tmp_path / "report.json"
    assert NodeWatch(str(path)).has_changed()

    for changed in (path, tmp_path):
        mode = stat.S_IMODE(changed.stat().st_mode)
        for bit in (stat.S_IWGRP, stat.S_IWOTH):
            changed.chmod(mode | bit)
            watch = NodeWatch(str(path))
            assert not watch.has_changed()
            assert watch.fault is None
            assert "others than the owner" in capsys.readouterr().err
        changed.chmod(mode)
    link = tmp_path / "link.json"
    link.symlink_to(path)
    assert not NodeWatch(str(link)).has_changed()
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
        assert not NodeWatch(str(path)).has_changed()


def test_a_fault_holds_until_a_report_is_without_it(tmp_path: Path) -> None:
    watch = NodeWatch(str(tmp_path / "report.json"))
    assert not watch.has_changed()
    files = ReportFiles(tmp_path)
    files.publish(REPORT)
    assert watch.has_changed()
    assert watch.fault is not None
    assert not watch.has_changed()
    (tmp_path / "report.json").write_text("{", encoding="utf-8")
    assert not watch.has_changed()
    assert watch.fault is not None
    (tmp_path / "report.json").unlink()
    assert not watch.has_changed()
    assert watch.fault is not None

    files.publish(NodeReport(node="n", boot_id="b", sequence=2, reported_at=NOW))
    assert watch.has_changed()
    assert watch.fault is None
