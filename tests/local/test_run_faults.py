"""``holdfast run`` through faults, on real processes."""

import json
import os
import shutil
import signal
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.adapters.local.checks import LocalChecks
from holdfast.adapters.local.cluster import LocalCluster
from holdfast.adapters.local.faults import (
    hang,
    kill_rank,
    power_off,
    write_kernel_line,
    xid_line,
)
from holdfast.adapters.local.layout import RunDir
from holdfast.adapters.local.machines import Delays, LocalMachines
from holdfast.adapters.local.store import LocalStore
from holdfast.apps.clock import SystemClock
from holdfast.kit.processes import is_alive, start_time
from holdfast.kit.serial import to_plain
from holdfast.model.health import Fault, Remedy, Severity
from holdfast.model.report import NodeReport
from holdfast.model.requests import Request, Verb
from tests.chaos.schedules import Clock
from tests.ports.fakes import FakeEvents

JOB = "echo attempt $HOLDFAST_ATTEMPT; sleep 600 & echo $! > $HOLDFAST_CHECKPOINT_DIR/child; wait"

ALL_PROCESSES = 3 * 2 + 2 * 2
"""Node process and agent on three nodes, shell and sleep on two of them."""


@pytest.fixture
def training(run):
    """A job on 2 of 3 nodes, running, its spare ready."""
    run.start("--nodes", "2", "--spares", "1", "--output", "json", "--", "bash", "-c", JOB)
    run.wait_for_attempt(1)
    run.wait_for_spare()
    return run


def node_of(run, rank):
    return run.record().placement[rank]


def inject_xid(run, node, code):
    line = xid_line(code, "0000:b9:00", "some text")
    uptime = timedelta(seconds=100)
    write_kernel_line(run.dir.node(node), line, now=datetime.now(UTC), since_boot=uptime)


def incidents(run):
    store = run.store()
    found = store.list_incidents()
    store.close()
    return found


def nodes(run):
    store = run.store()
    found = store.nodes()
    store.close()
    return found


def released(run, node):
    return [one for one in incidents(run) if one.node == node and one.released_at is not None]


def cancel(run):
    run.process.send_signal(signal.SIGINT)
    return run.finish()


@pytest.mark.smoke
def test_xid_74_replaces_the_node_and_the_job_resumes_on_the_spare(training, recorded):
    node = node_of(training, 0)

    inject_xid(training, node, 74)
    training.wait_for_attempt(2)
    training.wait_until("release", lambda: released(training, node))
    training.wait_for_spare()

    (incident,) = incidents(training)
    assert incident.remedy == "replace"
    assert incident.successor not in ("", node)
    assert [(touch.job, touch.attempt) for touch in incident.jobs] == [("job", 1)]
    assert incident.jobs[0].resumed_at is not None
    times = (incident.detected_at, incident.quarantined_at, incident.drained_at,
             incident.repaired_at, incident.released_at)  # fmt: skip
    assert list(times) == sorted(times)
    record = training.record()
    assert node not in record.placement
    assert (record.hardware_retries, record.app_retries) == (1, 0)
    assert not training.dir.node(node).path.exists()
    recorded("xid-replace")
    code, output = cancel(training)
    assert code == 130
    assert json.loads(output.splitlines()[-1])["outcome"] == "cancelled"


def test_xid_73_reboots_the_node_with_another_boot_and_a_clean_kernel_log(training, recorded):
    node = node_of(training, 1)
    before = training.dir.node(node).boot_id.read_text()

    inject_xid(training, node, 73)
    training.wait_for_attempt(2)
    training.wait_until("release", lambda: released(training, node))

    (incident,) = incidents(training)
    assert (incident.remedy, incident.successor) == ("reboot", "")
    assert training.dir.node(node).boot_id.read_text() != before
    assert "73" not in training.dir.node(node).kmsg.read_text()
    assert "73" in training.dir.node(node).messages.read_text()
    recorded("xid-reboot")


@pytest.mark.parametrize("code", [13, 31, 43, 45, 94, 999])
def test_errors_of_the_application_and_unknown_codes_do_not_touch_the_node(
    training, recorded, code
):
    node = node_of(training, 0)

    inject_xid(training, node, code)
    if code == 94:
        training.wait_for_attempt(2)
    training.wait_until(
        "the report", lambda: f'"code": {code}' in training.dir.node(node).report.read_text()
    )

    assert incidents(training) == ()
    assert training.record().attempt == (2 if code == 94 else 1)
    assert node in training.record().placement
    if code == 13:
        recorded("xid-application")


def test_a_killed_rank_is_a_failure_of_the_application_and_no_incident(training, recorded):
    kill_rank(training.dir.node(node_of(training, 1)))
    training.wait_for_attempt(2)

    record = training.record()
    assert (record.hardware_retries, record.app_retries) == (0, 1)
    assert record.failure.evidence == "node rank 1 was killed by signal 9"
    assert incidents(training) == ()
    assert len(training.left_over()) == ALL_PROCESSES  # what the killed rank had started is gone
    recorded("killed-process")


def test_a_powered_off_node_is_replaced_and_leaves_no_process(training, recorded):
    node = node_of(training, 0)

    power_off(training.dir.node(node))
    training.wait_for_attempt(2)
    training.wait_until("release", lambda: released(training, node))

    (incident,) = incidents(training)
    assert (incident.reason, incident.remedy) == ("NodePoweredOff", "replace")
    child = int((training.dir.checkpoints / "child").read_text())
    assert child  # the pid of the newest attempt: that of the first is gone with its machine
    assert len(training.left_over()) == ALL_PROCESSES
    recorded("power-loss")


def test_a_hanging_node_is_found_by_its_silence_and_replaced(training, recorded):
    node = node_of(training, 0)

    hang(training.dir.node(node))
    training.wait_for_attempt(2)
    training.wait_until("release", lambda: released(training, node))

    (incident,) = incidents(training)
    assert (incident.reason, incident.remedy) == ("NodeSilent", "replace")
    recorded("silent-node")


def test_an_agent_that_dies_alone_is_started_again_and_costs_nothing(training, recorded):
    node = node_of(training, 0)
    agent = training.pids(node)["agent"]

    os.kill(agent, signal.SIGKILL)
    training.wait_until("another agent", lambda: training.pids(node).get("agent", agent) != agent)

    assert incidents(training) == ()
    assert training.record().attempt == 1
    recorded("agent-killed")


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_clock_that_is_set_forward_while_machines_boot_replaces_none(run, recorded, tmp_path):
    clock = Clock(tmp_path / "clock")
    run.environment |= clock.environment
    run.start("--nodes", "2", "--boot-time", "3s", "--", "bash", "-c", JOB)
    run.wait_until("both machines", lambda: run.dir.state.exists() and len(nodes(run)) == 2)
    assert {node[2].phase for node in nodes(run).values()} == {"joining"}
    machines = {*nodes(run)}

    clock.set(3 * 3600)

    run.wait_for_attempt(1)
    assert ({*nodes(run)}, incidents(run)) == (machines, ())
    recorded("clock-forward")


def test_a_killed_node_process_takes_everything_on_its_machine_with_it(training):
    node = node_of(training, 0)
    pids = training.pids(node)

    os.kill(pids["node"], signal.SIGKILL)
    training.wait_for_attempt(2)

    assert training.pids(node) == {}
    assert len(training.left_over()) <= ALL_PROCESSES


@pytest.mark.parametrize(
    ("verb", "reason", "remedy"),
    [
        (Verb.REBOOT, "RebootRequested", "reboot"),
        (Verb.REPLACE, "ReplaceRequested", "replace"),
        (Verb.DEEP_CHECK, "DeepHealthCheckRequested", "none"),
    ],
)
def test_a_persons_request_is_carried_out_and_spends_no_retry(
    training, recorded, verb, reason, remedy
):
    node = node_of(training, 0)
    store = training.store()
    store.put_request(node, Request(id="r1", verb=verb, requested_at=datetime.now(UTC)))
    store.close()
    training.dir.wake.touch()

    training.wait_for_attempt(2)
    training.wait_until("release", lambda: released(training, node))

    (incident,) = incidents(training)
    assert (incident.reason, incident.remedy) == (reason, remedy)
    assert (incident.checked_at is not None) == (verb is Verb.DEEP_CHECK)
    record = training.record()
    assert (record.hardware_retries, record.app_retries) == (0, 0)
    store = training.store()
    assert store.requests() == {}
    store.close()
    if verb is Verb.REPLACE:
        recorded("request")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_everything_cleanly(training, number, code):
    training.process.send_signal(number)

    assert training.finish()[0] == code
    assert training.record().phase == "cancelled"
    assert training.left_over() == []


def test_no_process_survives_holdfast_being_killed(training):
    training.process.kill()
    training.process.wait()

    training.wait_for_nothing_left()


def test_the_next_run_ends_what_was_left_when_holdfast_and_its_node_processes_were_killed(run):
    script = "import os, time; os.fork(); os.setsid() if os.fork() else 0; time.sleep(600)"
    run.start("--", sys.executable, "-c", f"print('up', flush=True); {script}")
    run.wait_for_attempt(1)
    pids = run.pids(node_of(run, 0))
    os.kill(pids["node"], signal.SIGSTOP)
    run.process.kill()
    os.kill(pids["node"], signal.SIGKILL)
    run.process.wait()

    run.holdfast("run", "--boot-time", "0s", "--", "true")

    assert run.left_over() == []


def test_processes_are_listed_once_that_is_possible_again(training):
    node = node_of(training, 0)
    listed = training.dir.node(node).processes
    pids = training.pids(node)
    listed.unlink()
    listed.mkdir()  # cannot be replaced by a file, as on a full disk

    os.kill(pids["agent"], signal.SIGKILL)
    children = Path(f"/proc/{pids['node']}/task/{pids['node']}/children")
    others = {str(pids["agent"]), str(pids["task"])}
    training.wait_until("agent", lambda: {*children.read_text().split()} - others)
    listed.rmdir()

    training.wait_until("list", lambda: training.pids(node).keys() == {"node", "agent", "task"})
    assert training.pids(node)["task"] == pids["task"]
    assert training.pids(node)["agent"] != pids["agent"]


def test_a_reboot_ends_also_what_hides_from_its_parents_and_from_its_environment(run):
    hidden = "setsid env -i sleep 600 & echo $! > $HOLDFAST_CHECKPOINT_DIR/hidden-$HOLDFAST_ATTEMPT"
    ignore = "trap '' TERM; while true; do sleep 0.1; done"
    run.start("--grace", "60s", "--", "bash", "-c", f"{hidden}; echo up; {ignore}")
    run.wait_for_attempt(1)
    pid = int((run.dir.checkpoints / "hidden-1").read_text())
    started = start_time(pid)
    store = run.store()
    store.put_request(
        node_of(run, 0), Request(id="r1", verb=Verb.REBOOT, requested_at=datetime.now(UTC))
    )
    store.close()
    power_off(run.dir.node(node_of(run, 0)))

    run.wait_for_attempt(2)

    assert not is_alive(pid, started)


def test_the_report_of_an_earlier_boot_is_not_believed(tmp_path):
    store = LocalStore(tmp_path / "state.db", create=True)
    run_dir = RunDir(tmp_path)
    run_dir.create()
    machines = LocalMachines(run_dir, store, SystemClock(), Delays(boot=timedelta(0)), no_agent)
    checks = LocalChecks(machines, SystemClock())
    cluster = LocalCluster(machines, store, checks, SystemClock(), FakeEvents())
    machine = machines.add()
    machines.boot_due()
    fault = Fault(
        family="xid", condition="c", reason="r", severity=Severity.FATAL, remedy=Remedy.REPLACE,
        message="", since=datetime.now(UTC),
    )  # fmt: skip

    def seen(boot_id):
        report = NodeReport(
            node=machine.name, boot_id=boot_id, sequence=1, reported_at=fault.since, faults=(fault,)
        )
        machine.directory.report.write_text(json.dumps(to_plain(report)))
        return cluster.snapshot().nodes[0].faults

    try:
        assert seen("an earlier boot") == ()
        assert seen(machine.boot_id) == (fault,)
    finally:
        machines.shut_down()
        store.close()


def no_agent(name, directory):
    return ["sleep", "600"]


def test_hardware_retries_have_their_own_limit(run):
    run.start("--max-retries", "0", "--spares", "1", "--", "bash", "-c", "echo up; sleep 600")
    run.wait_for_attempt(1)
    inject_xid(run, node_of(run, 0), 79)

    code, output = run.finish()

    assert code == 1
    assert "no hardware retries allowed" in output
    assert "NvidiaGpuXidErrorPendingReplacement" in output


def test_without_a_spare_the_job_waits_for_the_replacement(run):
    run.start("--", "bash", "-c", "echo up; sleep 600")
    run.wait_for_attempt(1)
    node = node_of(run, 0)
    inject_xid(run, node, 74)

    run.wait_for_attempt(2)

    assert node_of(run, 0) == incidents(run)[0].successor


def test_recovery_mode_none_marks_the_node_and_moves_the_job(run, tmp_path):
    config = tmp_path / "holdfast.toml"
    config.write_text('[nodes]\nnode_recovery = "None"\n')
    run.start("--spares", "1", "--config", str(config), "--", "bash", "-c", "echo up; sleep 600")
    run.wait_for_attempt(1)
    run.wait_for_spare()
    node = node_of(run, 0)

    inject_xid(run, node, 74)
    run.wait_for_attempt(2)

    store = run.store()
    record = store.nodes()[node][2]
    store.close()
    assert record.phase == "quarantined"
    assert record.remediation.repairs == 0
    assert run.dir.node(node).path.exists()


def test_no_ended_process_of_a_machine_is_left_unwaited_for(training):
    node = node_of(training, 0)
    power_off(training.dir.node(node))
    training.wait_for_attempt(2)
    training.wait_until("release", lambda: released(training, node))

    def zombies():
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    fields = (Path("/proc") / entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                if fields[0] == "Z" and int(fields[1]) == training.process.pid:
                    yield entry

    training.wait_until("every ended process buried", lambda: not [*zombies()])


def test_a_hanging_node_does_not_survive_holdfast_being_killed_either(training):
    hang(training.dir.node(node_of(training, 0)))
    training.process.kill()
    training.process.wait()

    training.wait_for_nothing_left()
