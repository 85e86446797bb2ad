"""The local adapters keep the contracts of the ports, with machines that are real processes."""

import json
import os
import signal
import socket
import sys
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.adapters.local import pair_check
from holdfast.adapters.local.checks import LocalChecks
from holdfast.adapters.local.cluster import LocalCluster
from holdfast.adapters.local.job_launch import Launch
from holdfast.adapters.local.job_progress import JobProgress
from holdfast.adapters.local.jobs import LocalJobs
from holdfast.adapters.local.layout import RunDir
from holdfast.adapters.local.machine import Power
from holdfast.adapters.local.machines import Delays, LocalMachines
from holdfast.adapters.local.node_process import RestartHeartbeat
from holdfast.adapters.local.pair_check import BYTES
from holdfast.adapters.local.store import LocalStore, Submission
from holdfast.apps.clock import SystemClock
from holdfast.apps.run.summary import recoveries
from holdfast.kit.serial import to_plain
from holdfast.model.errors import NodeGone
from holdfast.model.events import CallFailed
from holdfast.model.jobs import AttemptRecord, Failure, FailureKind, JobPhase, JobRecord, JobSpec
from holdfast.model.nodes import Pairing, Phase
from holdfast.model.report import NodeReport
from holdfast.model.requests import Request, Verb
from tests.ports.builders import a_fault
from tests.ports.fakes import FakeClock, FakeEvents

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Platform:
    def __init__(self, path, clock=None):
        self.run = RunDir(path / "runs" / "job")
        self.run.create()
        self.store = LocalStore(self.run.state, create=True)
        clock = clock or SystemClock()
        delays = Delays(boot=timedelta(0), replace=timedelta(0))
        self.machines = LocalMachines(self.run, self.store, clock, delays, sleeping_agent)
        checks = LocalChecks(self.machines, clock)
        self.events = FakeEvents()
        self.cluster = LocalCluster(self.machines, self.store, checks, clock, self.events)
        launch = Launch(
            argv=[sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"],
            nproc_per_node=1,
            checkpoint_dir=path,
        )
        self.jobs = LocalJobs(self.run, self.machines, self.store, lambda _: launch, clock)
        self.node = self.machines.add().name
        self.machines.boot_due()

    def view(self, node=None):
        return next(one for one in self.cluster.snapshot().nodes if one.name == (node or self.node))

    def names(self):
        return {one.name for one in self.cluster.snapshot().nodes}

    def submit(self):
        record = JobRecord(
            phase=JobPhase.STARTING, phase_since=NOW, attempt=1, placement=(self.node,)
        )
        submission = Submission(
            id="job", name="job", command=(), pid=1, started_at=NOW, checkpoint_dir=""
        )
        self.store.add_job(JobSpec(name="job", nodes=1), record, submission)

    def rank(self):
        """The only rank once it is over."""
        end = time.monotonic() + 30
        while True:
            for machine in self.machines.all():
                machine.exchange(datetime.now(UTC))
            (view,) = self.jobs.jobs()
            if view.ranks and view.ranks[0].exit_code is not None:
                return view.ranks[0]
            assert time.monotonic() < end
            time.sleep(0.01)


def sleeping_agent(name, directory):
    return ["sleep", "600"]


@pytest.fixture
def platform(tmp_path):
    one = Platform(tmp_path)
    yield one
    one.machines.shut_down()
    one.store.close()


def test_a_machine_that_is_gone_cannot_be_rebooted(platform):
    view = platform.view()
    platform.cluster.retire(platform.node)

    with pytest.raises(NodeGone, match=view.provider_id):
        platform.machines.reboot(view, "incident/1")


def test_a_retired_node_is_forgotten_with_its_request_and_its_directory_is_kept(platform):
    platform.store.put_request(platform.node, Request(id="r", verb=Verb.REBOOT, requested_at=NOW))

    platform.cluster.retire(platform.node)
    platform.cluster.retire(platform.node)

    assert platform.names() == set()
    assert platform.store.requests() == {}
    assert (platform.run.retired / platform.node).is_dir()


def test_a_record_is_stored_durably_and_alone(platform):
    record = replace(platform.view().record, phase=Phase.SCHEDULABLE)

    platform.cluster.put(platform.node, record)

    reader = LocalStore(platform.run.state)
    assert reader.nodes()[platform.node][2] == record
    reader.close()


def test_a_launch_that_is_repeated_launches_nothing_more(platform):
    platform.submit()
    platform.jobs.launch("job")
    first = platform.machines[platform.node].task

    platform.jobs.launch("job")

    assert platform.machines[platform.node].task is first
    platform.jobs.kill("job")
    assert platform.rank().exit_code == -9


def test_a_rank_that_is_asked_to_stop_ends_by_sigterm(platform):
    platform.submit()
    platform.jobs.launch("job")
    log = platform.run.log(1, 0)
    end = time.monotonic() + 30
    while not (log.exists() and log.read_text()) and time.monotonic() < end:
        time.sleep(0.01)

    platform.jobs.stop("job")

    assert platform.rank().exit_code == -15


def test_a_rank_dies_with_its_machine(platform):
    platform.submit()
    platform.jobs.launch("job")

    platform.machines[platform.node].cut_power(NOW)

    assert platform.rank().exit_code == -9
    assert platform.view().powered_on is False


def test_the_steps_that_are_lost_are_those_done_again():
    def attempt(number, first, last, failure):
        return AttemptRecord(
            attempt=number, placement=("a",), started_at=NOW + timedelta(seconds=10 * number),
            stopped_at=NOW + timedelta(seconds=10 * number + 5),
            first_step=first, last_step=last, failure=failure,
        )  # fmt: skip

    failure = Failure(
        kind=FailureKind.HARDWARE, reason="r", at=NOW + timedelta(seconds=14), step=57
    )
    record = JobRecord(
        phase=JobPhase.SUCCEEDED,
        phase_since=NOW,
        attempts=(attempt(1, 0, 57, failure), attempt(2, 50, 99, None)),
    )

    (one,) = recoveries(record)

    assert one.lost_steps == 7
    assert (one.stop_s, one.start_s) == (1, 5)


# tests between two machines


def paired(platform, *, began_at=NOW):
    """Two machines, of which the first is tested with the second; their names."""
    partner = platform.machines.add().name
    platform.machines.boot_due()
    pairing = Pairing(since=NOW, partner=partner, began_at=began_at)
    record = replace(platform.view().record, phase=Phase.CHECKING, pairing=pairing)
    platform.cluster.put(platform.node, record)
    return platform.node, partner


def outcome(platform):
    end = time.monotonic() + 60
    while (found := platform.view().pair) is None:
        for machine in platform.machines.all():
            machine.exchange(datetime.now(UTC))
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


def test_two_machines_that_reach_each_other_pass_and_report_how_fast(platform):
    node, partner = paired(platform)

    for _ in range(2):
        platform.cluster.start_pair(node, partner, NOW.isoformat())
    found = outcome(platform)

    assert (found.passed, found.partner, found.detail) == (True, partner, "")
    assert found.measured["pair_tcp_mb_per_s"] > 1


@pytest.mark.parametrize(
    ("sent", "reported"),
    [(b"x" * BYTES, "other machine differs"), (b"", "other machine differs")],
)
def test_bytes_that_come_back_wrong_or_not_at_all_are_reported(sent, reported, capsys):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            connection = listener.accept()[0]
            with connection:
                while connection.recv(1 << 16):
                    pass
                connection.sendall(sent)

        thread = threading.Thread(target=answer)
        thread.start()
        code = pair_check.main(["query", str(listener.getsockname()[1])])
        thread.join()

    assert code == 1
    assert reported in capsys.readouterr().out


def test_the_outcome_of_one_test_is_not_that_of_the_next(platform):
    node, partner = paired(platform)
    platform.cluster.start_pair(node, partner, NOW.isoformat())
    outcome(platform)

    record = platform.view().record
    later = replace(record.pairing, began_at=NOW + timedelta(seconds=1))
    platform.cluster.put(node, replace(record, pairing=later))

    assert platform.view().pair is None


def report_of(platform, **changes):
    machine = platform.machines.get(platform.node)
    values = {
        "node": platform.node, "boot_id": machine.boot_id, "sequence": 1, "reported_at": NOW,
        "faults": (a_fault(),), **changes,
    }  # fmt: skip
    return machine.directory.report, json.dumps(to_plain(NodeReport(**values)))


def fill_with_fifo(path):
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (fill_with_fifo, "is a FIFO, expected a regular file"),
        (lambda path: path.write_text("{"), "Expecting property name"),
        (lambda path: path.write_text("[" * 100_000), "nested deeper"),
        (lambda path: path.write_bytes(b"\xff\xfe"), "codec can't decode"),
        (lambda path: path.write_text(path.read_text().replace("+00:00", "")), "has no zone"),
        (lambda path: path.write_text(path.read_text().replace("2026-", "9999-")), "2000 to 2199"),
    ],
)
def test_a_bad_report_is_skipped_with_one_warning_and_all_other_nodes_go_on(platform, spoil, why):
    path, text = report_of(platform)
    path.write_text(text)
    other = platform.machines.add().name
    platform.machines.boot_due()
    assert platform.view().faults == (a_fault(),)

    spoil(path)

    for _ in range(3):
        assert platform.names() == {platform.node, other}
        assert platform.view().faults == (a_fault(),), "the last valid report still holds"
    [warning] = platform.events.reported
    assert isinstance(warning, CallFailed)
    assert warning.what == f"reading {path}"
    assert why in warning.error


def test_a_bad_heartbeat_is_skipped_and_its_node_counts_as_silent(platform):
    machine = platform.machines.get(platform.node)
    machine.directory.heartbeat.write_text(f"{machine.boot_id} 1\n")
    assert platform.view().heartbeat_at is not None

    seen_at = platform.view().heartbeat_at
    machine.directory.heartbeat.write_bytes(b"x" * 100_000)

    assert platform.view().heartbeat_at == seen_at
    assert "larger than" in platform.events.reported[0].error


def test_a_heartbeat_from_before_the_clock_was_set_back_hides_no_silent_agent(tmp_path):
    clock = FakeClock(NOW)
    platform = Platform(tmp_path, clock)
    try:
        machine = platform.machines.get(platform.node)
        machine.directory.heartbeat.write_text(f"{machine.boot_id} 1\n")
        clock.time = NOW + timedelta(hours=1)
        assert platform.view().heartbeat_at == NOW + timedelta(hours=1)

        clock.time = NOW
        assert platform.view().heartbeat_at == NOW
        clock.time = NOW + timedelta(seconds=1)
        assert platform.view().heartbeat_at == NOW
    finally:
        platform.machines.shut_down()
        platform.store.close()


def wait_for_heartbeat(platform, after):
    end = time.monotonic() + 30
    while platform.view().heartbeat_at <= after:
        assert time.monotonic() < end
        time.sleep(0.05)
    return platform.view().heartbeat_at


def test_a_node_whose_agent_restarts_slowly_is_not_silent(platform, tmp_path):
    """As on a busy machine: the new agent has not sent a heartbeat yet."""
    machine = platform.machines.get(platform.node)
    machine.directory.heartbeat.write_text(f"{machine.boot_id} 7\n")
    seen_at = platform.view().heartbeat_at
    while not machine.directory.processes.exists():
        time.sleep(0.05)
    pid, _ = json.loads(machine.directory.processes.read_text())["agent"]

    os.kill(pid, signal.SIGKILL)

    for _ in range(2):
        seen_at = wait_for_heartbeat(platform, seen_at)
    machine.directory.heartbeat.write_text(f"{machine.boot_id} 1\n")
    wait_for_heartbeat(platform, seen_at)
    time.sleep(1.2)
    assert machine.directory.heartbeat.read_text() == f"{machine.boot_id} 1\n"


def test_heartbeats_of_a_restart_end_with_the_first_of_the_agent_or_in_time(tmp_path):
    path = tmp_path / "heartbeat"
    path.write_text("boot 41\n")
    restart = RestartHeartbeat(path, limit_s=60)

    restart.begin()
    restart.send()
    first = path.read_text()
    assert first.startswith("boot restarting ")
    expired = RestartHeartbeat(path, limit_s=0)
    expired.begin()
    expired.send()
    assert (path.read_text(), expired.is_active) == (first, False)

    path.write_text("boot 1\n")
    restart.send()
    assert (path.read_text(), restart.is_active) == ("boot 1\n", False)


def test_a_node_without_a_heartbeat_gets_none_from_a_restart(tmp_path):
    restart = RestartHeartbeat(tmp_path / "heartbeat")
    restart.begin()
    restart.send()
    assert not (tmp_path / "heartbeat").exists()


@pytest.mark.parametrize("step", [timedelta(hours=3), -timedelta(hours=3)])
def test_a_clock_that_is_set_changes_no_time_without_a_step(tmp_path, step) -> None:
    clock = FakeClock()
    progress = JobProgress(Launch(argv=(), nproc_per_node=1, checkpoint_dir=tmp_path), clock)

    def look(number) -> timedelta:
        progress.look(began_at=NOW, step=number, nodes=())
        return progress.looked_at - progress.steps.step_at

    look(1)
    clock.time += timedelta(seconds=4)
    clock.set_forward(step)
    assert look(1) == timedelta(seconds=4)
    assert progress.set_by == step
    assert look(2) == timedelta(0)
    clock.set_forward(-step)
    assert look(2) == timedelta(0)
    progress.end()


def test_a_machine_that_was_ordered_while_the_clock_was_ahead_boots(tmp_path) -> None:
    clock = FakeClock(NOW + timedelta(hours=3))
    platform = Platform(tmp_path, clock)
    machine = platform.machines[platform.machines.add().name]
    clock.time = NOW

    platform.machines.boot_due()

    assert machine.power is Power.ON
    platform.machines.shut_down()
    platform.store.close()


@pytest.mark.parametrize("phase", [Phase.JOINING, Phase.SCHEDULABLE, Phase.CHECKING])
def test_a_machine_that_boots_again_joins_from_then_on(tmp_path, phase) -> None:
    clock = FakeClock()
    platform = Platform(tmp_path, clock)
    record = replace(platform.view().record, phase=phase, phase_since=clock.now())
    platform.cluster.put(platform.node, record)
    platform.machines.shut_down()
    clock.time += timedelta(hours=3)

    platform.machines.restore()

    record = platform.view().record
    assert (record.phase, record.phase_since) == (Phase.JOINING, clock.time)
    platform.store.close()
