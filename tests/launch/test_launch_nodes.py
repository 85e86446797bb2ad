"""Launchers of several nodes, as processes of this machine, and what happens when one is lost."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from launch.job_of_nodes import KEY, LASTING, Job, ends, running_job
from launch.launched import (
    LIMIT_S,
    arguments_of,
    launcher_of,
    none_runs,
    numbers_in,
    start,
    wait_for,
)

from holdfast.kit.processes import descendants
from tests.engines.matrix import Matrix

pytestmark = pytest.mark.launchers


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    with running_job(tmp_path, "2:3") as made:
        yield made


def test_a_failed_rank_restarts_the_ranks_of_all_nodes(job: Job) -> None:
    job.lease = LASTING
    guards = job.start_all(2)
    job.await_round(1)
    job.exit_rank(1, 3, 5)
    job.await_round(2)
    job.finish()

    assert ends(guards) == [0, 0]
    assert numbers_in(job.folder, "world.*") == [4] * 8


def launcher_is_gone(job: Job, guard: subprocess.Popen[str], signum: signal.Signals) -> None:
    """Send a signal to the launcher of the second node; a hot spare takes over."""
    old = job.ranks(1)
    os.kill(launcher_of(guard.pid), signum)
    job.await_round(2)
    assert none_runs(old)
    job.finish()


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSTOP])
def test_a_spare_replaces_a_node_whose_launcher_is_killed_or_stops(
    job: Job, signum: signal.Signals
) -> None:
    guards = job.start_all(3)
    job.await_round(1)
    lost = job.node_of(numbers_in(job.folder, "rank.1.3")[0])
    assert lost is not guards[0]
    launcher_is_gone(job, lost, signum)

    codes = dict(zip(guards, ends(guards), strict=True))
    assert codes.pop(lost) == 128 + signal.SIGKILL
    assert list(codes.values()) == [0, 0]


@pytest.mark.parametrize("number", [0, 1], ids=["coordinator", "other"])
def test_a_launcher_that_was_stopped_for_longer_than_its_lease_joins_again(
    job: Job, number: int
) -> None:
    """As by a machine that freezes, or by storage that does not respond for some seconds."""
    job.lease, job.nnodes = "3s", "2"  # none is lost before, on a busy machine
    job.variables["HOLDFAST_CHECKPOINT_DIR"] = str(job.folder / "checkpoints")
    guards = job.start_all(2)
    job.await_round(1)
    own = [pid for pid in job.ranks(1) if job.node_of(pid) is guards[number]]
    launcher = launcher_of(guards[number].pid)
    os.kill(launcher, signal.SIGSTOP)
    wait_for(lambda: none_runs(own), "the end of its ranks")
    os.kill(launcher, signal.SIGCONT)
    job.await_round(2)
    coordinator = launcher_of(guards[0].pid)
    assert [pid for pid in descendants(coordinator) if b"watch" in arguments_of(pid)]
    job.finish()

    assert ends(guards) == [0, 0]


def test_a_launcher_that_was_lost_before_the_end_learns_that_the_job_has_succeeded(
    job: Job,
) -> None:
    guards = [job.start("--node-rank", str(rank), "--lease-timeout", "5s") for rank in range(3)]
    job.await_round(1)
    frozen = job.node_of(numbers_in(job.folder, "rank.1.3")[0])
    launcher = launcher_of(frozen.pid)
    for pid in (frozen.pid, launcher):  # in this order: the guard kills a launcher that stops
        os.kill(pid, signal.SIGSTOP)
    for pid in numbers_in(job.folder, "rank.1.[23]"):
        os.kill(pid, signal.SIGKILL)
    job.await_round(2)
    job.finish()
    [spare] = [one for one in guards if one not in (frozen, guards[0])]
    assert ends([spare]) == [0]

    os.kill(launcher, signal.SIGCONT)
    assert frozen.stderr is not None
    assert any("connection to the coordinator lost" in line for line in frozen.stderr)
    os.kill(frozen.pid, signal.SIGCONT)

    assert ends([guards[0], frozen]) == [0, 0]


def test_a_launcher_that_leaves_on_sigterm_is_replaced(job: Job) -> None:
    guards = job.start_all(3)
    job.await_round(1)
    leaver = job.node_of(numbers_in(job.folder, "rank.1.3")[0])
    leaver.send_signal(signal.SIGTERM)
    job.await_round(2)
    job.finish()

    codes = dict(zip(guards, ends(guards), strict=True))
    assert codes.pop(leaver) == 128 + signal.SIGTERM
    assert list(codes.values()) == [0, 0]


def test_a_launcher_that_joins_later_replaces_a_lost_one(job: Job) -> None:
    job.nnodes = "2"
    guards = job.start_all(2)
    job.await_round(1)
    lost = job.node_of(numbers_in(job.folder, "rank.1.3")[0])
    os.kill(launcher_of(lost.pid), signal.SIGKILL)
    assert lost.wait(60) == 128 + signal.SIGKILL
    late = job.start()
    job.await_round(2)
    job.finish()

    assert ends([guards[0], late]) == [0, 0]


def test_launchers_end_their_ranks_without_coordinator_and_meet_the_next_one(job: Job) -> None:
    job.nnodes = "2"
    first, second = job.start_all(2)
    job.await_round(1)
    old = job.ranks(1)
    os.kill(launcher_of(first.pid), signal.SIGKILL)
    wait_for(lambda: none_runs(old), "the end of all ranks")
    assert second.poll() is None
    third = job.start("--node-rank", "0")
    job.await_round(2)  # the new coordinator continues with the number
    job.finish()

    assert ends([second, third]) == [0, 0]


@pytest.mark.parametrize(("restarts", "code"), [("1", 75), ("0", 1)])
def test_launchers_without_coordinator_request_a_restart_of_the_job_at_last(
    job: Job, restarts: str, code: int
) -> None:
    job.nnodes = "2"
    options = ("--join-timeout", "8s", "--max-job-restarts", restarts)
    first, second = (job.start("--node-rank", str(rank), *options) for rank in (0, 1))
    job.await_round(1)
    os.kill(launcher_of(first.pid), signal.SIGKILL)

    assert ends([second]) == [code]


def test_ranks_that_are_being_stopped_end_at_once_without_coordinator(job: Job) -> None:
    job.lease, job.nnodes = "3s", "2"  # none is lost before, on a busy machine
    first, _ = (job.start("--shutdown-timeout", "10m", "--node-rank", str(one)) for one in (0, 1))
    job.await_round(1)
    job.exit_rank(1, 3, 5)  # the others ignore SIGTERM
    failed = numbers_in(job.folder, "rank.1.3")
    wait_for(lambda: none_runs(failed), "the failure")
    time.sleep(0.3)  # the order to stop reaches all launchers
    os.kill(launcher_of(first.pid), signal.SIGKILL)

    wait_for(lambda: none_runs(job.ranks(1)), "the end of all ranks")


def test_the_coordinator_stops_all_nodes_on_a_signal(job: Job) -> None:
    job.lease = LASTING
    more = ("--max-restarts", "100")
    guards = [job.start("--node-rank", str(rank), *more) for rank in range(3)]
    number = await_spare(job, guards[0])
    guards[0].send_signal(signal.SIGTERM)

    assert ends(guards) == [128 + signal.SIGTERM] * 3
    assert none_runs(job.ranks(number))


def await_spare(job: Job, first: subprocess.Popen[str]) -> int:
    """Restart the ranks until the third launcher has joined; return the number of the round."""
    assert first.stderr is not None
    number = 1
    while True:
        job.await_round(number)
        while "RoundStarted" not in (line := first.stderr.readline()):
            assert line, "the coordinator has ended"
        if "hot spares: 1" in line:
            return number
        job.exit_rank(number, 3, 5)
        number += 1


COLUMN = "one machine/processes"


def reasons(first: subprocess.Popen[str]) -> list[str]:
    """Reason codes that the coordinator has printed, without those of starts."""
    _, text = first.communicate(timeout=LIMIT_S)
    printed = re.findall(r"^holdfast: ([A-Z]\w+): ", text, re.MULTILINE)
    return [reason for reason in printed if reason != "RoundStarted"]


def test_a_killed_rank_and_a_lost_node_are_in_the_fault_matrix(job: Job, matrix: Matrix) -> None:
    guards = job.start_all(3)
    job.await_round(1)
    began = time.monotonic()
    os.kill(numbers_in(job.folder, "rank.1.3")[0], signal.SIGKILL)
    job.await_round(2)
    in_place = {"resumed": time.monotonic() - began}
    lost = job.node_of(numbers_in(job.folder, "rank.2.3")[0])
    began = time.monotonic()
    os.kill(launcher_of(lost.pid), signal.SIGKILL)
    job.await_round(3)
    on_spare = {"resumed": time.monotonic() - began}
    job.finish()

    found = reasons(guards[0])
    assert found == ["RankFailed", "RanksRestarted", "RankFailed", "RanksRestarted", "JobSucceeded"]
    outcome = {"job": "running", "rung": "in-place", "events": found[:2]}
    matrix.record("launch-rank", COLUMN, outcome, in_place)
    outcome = {"job": "running", "rung": "hot-spare", "events": found[2:4]}
    matrix.record("launch-node", COLUMN, outcome, on_spare)


def test_a_job_without_restarts_in_place_is_in_the_fault_matrix(job: Job, matrix: Matrix) -> None:
    job.lease = LASTING
    job.nnodes = "2"
    budget = ("--max-restarts", "0", "--max-job-restarts", "1")
    guards = [job.start("--node-rank", str(rank), *budget) for rank in (0, 1)]
    job.await_round(1)
    began = time.monotonic()
    job.exit_rank(1, 3, 5)
    assert ends(guards[1:]) == [75]
    seconds = {"stopped": time.monotonic() - began}

    found = reasons(guards[0])
    assert guards[0].returncode == 75
    outcome = {"job": "restarting", "rung": "whole-job", "events": found}
    matrix.record("launch-spent", COLUMN, outcome, seconds)


@pytest.mark.parametrize("is_pod", [True, False])
def test_a_coordinator_that_leaves_is_replaced_and_the_other_launchers_stay(
    job: Job, *, is_pod: bool
) -> None:
    job.nnodes = "2"
    job.lease = "5s"  # no launcher is lost, however busy the machine is
    job.variables = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"} if is_pod else {}
    options = () if is_pod else ("--on-sigterm", "leave")
    first, second = (job.start("--node-rank", str(rank), *options) for rank in (0, 1))
    job.await_round(1)
    old = job.ranks(1)
    first.send_signal(signal.SIGTERM)
    _, printed = first.communicate(timeout=LIMIT_S)
    assert first.returncode == 128 + signal.SIGTERM
    assert "CoordinatorLeft: signal 15" in printed
    wait_for(lambda: none_runs(old), "the end of all ranks")
    assert second.poll() is None
    third = job.start("--node-rank", "0", *options)
    job.await_round(2)  # no round has begun in between
    job.finish()

    assert ends([second, third]) == [0, 0]


@pytest.mark.parametrize(
    ("signum", "options"), [(signal.SIGINT, ()), (signal.SIGTERM, ("--on-sigterm", "stop"))]
)
def test_a_coordinator_in_a_pod_stops_all_nodes_on_ctrl_c_or_if_told_to(
    job: Job, signum: signal.Signals, options: tuple[str, ...]
) -> None:
    job.lease = LASTING
    job.nnodes = "2"
    job.variables = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    guards = [job.start("--node-rank", str(rank), *options) for rank in (0, 1)]
    job.await_round(1)
    guards[0].send_signal(signum)

    assert ends(guards) == [128 + signum] * 2


def test_an_exit_code_that_forbids_restarts_ends_all_launchers_with_it(job: Job) -> None:
    job.lease = LASTING
    guards = job.start_all(3)
    job.await_round(1)
    job.exit_rank(1, 2, 93)

    assert ends(guards) == [93] * 3


def test_a_launcher_with_another_key_does_not_take_part(job: Job) -> None:
    job.lease = LASTING
    job.nnodes = "2"
    guards = job.start_all(2)
    job.await_round(1)
    stranger = job.start("--join-timeout", "1s", key="another key of 16")
    _, errors = stranger.communicate(timeout=LIMIT_S)
    job.finish()

    assert stranger.returncode == 1
    assert "no coordinator" in errors
    assert "give all launchers the same HOLDFAST_LAUNCH_KEY" in errors
    assert ends(guards) == [0, 0]
    assert len(job.ranks(1)) == 4


@contextmanager
def job_at(endpoint: str, folder: Path) -> Iterator[Job]:
    folder.mkdir()
    with running_job(folder, "2") as made:
        made.endpoint = endpoint
        yield made


def test_a_run_does_not_join_another_one_at_its_endpoint(job: Job, tmp_path: Path) -> None:
    job.nnodes = "2"
    guards = [job.start("--rdzv-id", "A") for _ in range(2)]
    job.await_round(1)
    with job_at(job.endpoint, tmp_path / "other") as other:
        options = ("--rdzv-id", "B", "--join-timeout", "1s")
        others = [other.start(*options) for _ in range(2)]
        printed = [one.communicate(timeout=LIMIT_S)[1] for one in others]
    job.exit_rank(1, 3, 5)
    job.await_round(2)
    job.finish()

    assert [one.returncode for one in others] == [1, 1]
    used = f"endpoint {job.endpoint} is used by the job with --rdzv-id 'A'; choose another"
    assert [f"no coordinator: {used}" in one for one in printed] == [True, True]
    assert other.ranks(1) == []
    shown = "".join(one.communicate(timeout=LIMIT_S)[1] for one in guards)
    assert [one.returncode for one in guards] == [0, 0]
    assert set(re.findall("hot spares: .", shown)) == {"hot spares: 0"}


def test_a_run_starts_when_another_one_has_left_its_endpoint(job: Job, tmp_path: Path) -> None:
    job.nnodes = "2"
    guards = [job.start("--rdzv-id", "A") for _ in range(2)]
    job.await_round(1)
    with job_at(job.endpoint, tmp_path / "other") as other:
        others = [other.start("--rdzv-id", "B") for _ in range(2)]
        for one in others:
            assert one.stderr is not None
            assert "waiting for the endpoint: endpoint" in one.stderr.readline()
        job.finish()
        assert ends(guards) == [0, 0]
        other.await_round(1)
        other.finish()

        assert ends(others) == [0, 0]


def test_too_few_launchers_fail_after_the_join_timeout(job: Job) -> None:
    alone = job.start("--join-timeout", "300ms")
    _, errors = alone.communicate(timeout=LIMIT_S)

    assert alone.returncode == 1
    assert "JobFailed: timed out: 1 of 2 launchers joined" in errors


def test_ranks_do_not_get_the_key(job: Job) -> None:
    job.script.write_text("import os, sys\nsys.exit('HOLDFAST_LAUNCH_KEY' in os.environ)\n")

    assert ends(job.start_all(2)) == [0, 0]


@pytest.mark.parametrize(
    ("options", "key", "problem"),
    [
        (("--nnodes", "2"), KEY, "--rdzv-endpoint: missing"),
        (("--nnodes", "2", "--rdzv-endpoint", "a:1"), "short", "HOLDFAST_LAUNCH_KEY: missing"),
        (("--nnodes", "2", "--rdzv-endpoint", "a:x"), KEY, "--rdzv-endpoint: 'a:x'"),
        (("--nnodes", "3:2", "--rdzv-endpoint", "a:1"), KEY, "'3:2': expected N or MIN:MAX"),
    ],
)
def test_an_incomplete_rendezvous_is_refused(
    options: tuple[str, ...], key: str, problem: str
) -> None:
    guard = start(*options, "--no-python", "true", HOLDFAST_LAUNCH_KEY=key)
    _, errors = guard.communicate(timeout=LIMIT_S)

    assert guard.returncode == 2
    assert problem in errors
