"""Faults on a real Slurm cluster, from the kernel's line to the release, by real processes."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from slurm_fleet_at_work import (
    REBOOT_XID,
    REPLACE_XID,
    Fleet,
    a_fleet,
    on_both_versions,
    stays,
)

from holdfast.adapters.slurm.commands.hostlist import expand
from holdfast.kit.processes import descendants
from holdfast.model.errors import BackendError
from holdfast.model.names import Reason, SlurmReason
from tests.engines.slurm_cluster import SlurmCluster

REPLACE, REBOOT, OURS = SlurmReason.REPLACE, SlurmReason.REBOOT, SlurmReason.HOLDFAST


@on_both_versions
def test_nodes_are_repaired_under_their_names_and_their_job_goes_on_elsewhere(fleet: Fleet) -> None:
    fleet.control()
    job = fleet.run_job("-N2")  # on the first ones
    boot = fleet.slurm.node("node3")["BootTime"]

    fleet.machines["node1"].log(REPLACE_XID)
    fleet.machines["node3"].log(REBOOT_XID)
    rebooted = fleet.until_recovered("node3")
    takes_down_for_its_boot(fleet, "node3")
    replaced = fleet.until_recovered("node1")

    assert (replaced.reason, rebooted.reason) == (Reason.XID_REPLACE, Reason.XID_REBOOT)
    assert replaced.released_at is not None
    assert fleet.is_idle("node1") or "MIXED" in fleet.slurm.state("node1")
    assert fleet.reason("node1") == ""
    assert fleet.slurm.node("node3")["BootTime"] != boot
    assert orders(fleet) == {"node1": ["suspend", "resume"], "node3": ["reboot"]}
    fleet.until(lambda: fleet.slurm.jobs()[job] == "RUNNING")
    assert [fleet.phase(name) for name in fleet.machines] == ["schedulable"] * 4


def takes_down_for_its_boot(fleet: Fleet, node: str) -> None:
    """As slurmctld may do shortly after the release: it judges by seconds of the boot.

    Where the new slurmd answers to a ping before it is registered, slurmctld notices nothing.
    """
    machine = fleet.machines[node]
    for _ in range(5):
        machine.kill_slurmd()
        time.sleep(1.5)
        machine.start_slurmd(is_new_boot=True)
        with suppress(BackendError):
            fleet.slurm.until(lambda: _is_noticed(fleet), timedelta(seconds=5))
            break
    assert _is_noticed(fleet)
    fleet.until(lambda: "DOWN" not in fleet.slurm.state(node))


def _is_noticed(fleet: Fleet) -> bool:
    return "unexpectedly rebooted" in fleet.slurm.log(lines=100_000)


def orders(fleet: Fleet) -> dict[str, list[str]]:
    """What Slurm's programs were asked for, by node."""
    found: dict[str, list[str]] = {}
    for line in (fleet.slurm.folder / "orders").read_text(encoding="utf-8").splitlines():
        verb, nodes = line.split()
        for node in expand(nodes):
            found.setdefault(node, []).append(verb)
    return found


def test_the_reason_says_what_is_done_and_why_until_there_is_another_machine(fleet: Fleet) -> None:
    fleet.control(provider=fleet.by_command())

    fleet.machines["node1"].log(REPLACE_XID)

    fleet.until(lambda: fleet.orders == [["replace", "node1"]])
    assert fleet.slurm.state("node1") == {"IDLE", "FAIL"}
    assert fleet.reason("node1") == f"{REPLACE} {OURS} {Reason.XID_REPLACE}"
    fleet.machines["node1"].reboot()
    stays(lambda: "FAIL" in fleet.slurm.state("node1"), 1.5)
    assert fleet.phase("node1") == "replacing"
    fleet.machines["node1"].renew()
    fleet.until_recovered("node1")
    assert len(fleet.orders) == 1


@on_both_versions
def test_what_people_and_slurm_ask_for_is_done_when_the_job_has_ended_and_with_down_at_once(
    fleet: Fleet,
) -> None:
    fleet.control(unavailable=4)
    jobs = {name: fleet.slurm.submit("-N1", "-w", name, script="sleep 600")
            for name in fleet.machines}  # fmt: skip
    fleet.until(lambda: {*fleet.slurm.jobs().values()} == {"RUNNING"})

    fleet.update("node1", state="fail", reason=REPLACE)
    fleet.update("node2", state="fail", reason=REBOOT)
    fleet.update("node3", state="drain", reason="Kill task failed")
    fleet.update("node4", state="down", reason=REBOOT)

    fleet.until_recovered("node4")
    assert fleet.slurm.jobs()[jobs["node4"]] != "COMPLETED"
    patient = ("node1", "node2", "node3")
    fleet.until(lambda: {fleet.phase(name) for name in patient} == {"quarantined"})
    assert {fleet.slurm.jobs()[jobs[name]] for name in patient} == {"RUNNING"}
    assert fleet.reason("node1").startswith(f"{REPLACE} {OURS}")
    assert fleet.reason("node2").startswith(f"{REBOOT} {OURS}")
    fleet.slurm.run("scancel", *(jobs[name] for name in patient))
    reasons = [fleet.until_recovered(name).reason for name in patient]
    assert reasons == [Reason.REQUESTED_REPLACE, Reason.REQUESTED_REBOOT, Reason.REQUESTED_REBOOT]
    assert orders(fleet) == {
        "node1": ["suspend", "resume"], "node2": ["reboot"], "node3": ["reboot"],
        "node4": ["reboot"],
    }  # fmt: skip


def test_what_is_nearly_a_request_is_reported_and_left_alone(fleet: Fleet) -> None:
    controller = fleet.control()
    nearly = {"node1": "action:replace", "node2": "Action: Reboot", "node3": "Action:Destroy"}

    for node, said in nearly.items():
        fleet.update(node, state="fail", reason=said)

    fleet.until(lambda: controller.log.count("spelled exactly") == len(nearly))
    stays(lambda: {node: fleet.reason(node) for node in nearly} == nearly, 1.0)
    assert {fleet.phase(node) for node in nearly} == {"schedulable"}
    assert controller.log.count("spelled exactly") == len(nearly)


def test_a_drill_is_an_event_of_its_node(fleet: Fleet) -> None:
    controller = fleet.control()
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=30)
    machine = fleet.machines["node2"]
    config = machine.root / "agent.toml"
    config.write_text(f"drill_until = {until.isoformat()}\n{config.read_text()}", encoding="utf-8")

    (agent,) = descendants(machine._plugs["agent"].pid)
    os.kill(agent, signal.SIGHUP)

    told = f"NodeDrillActive: node2: drill active until {until:%Y-%m-%d %H:%M:%S} UTC"
    fleet.until(lambda: told in controller.log)
    stays(lambda: controller.log.count("NodeDrillActive") == 1, 1.0)
    assert fleet.phase("node2") == "schedulable"


def test_what_somebody_else_has_drained_is_neither_repaired_nor_opened(fleet: Fleet) -> None:
    controller = fleet.control()
    fleet.update("node1", state="drain", reason="cabling, Bob")
    fleet.until(lambda: fleet.slurm.state("node1") == {"IDLE", "DRAIN"})

    fleet.machines["node1"].log(REPLACE_XID)

    fleet.until(lambda: "cabling, Bob" in controller.log)
    stays(lambda: fleet.reason("node1") == "cabling, Bob", 1.0)
    assert fleet.slurm.state("node1") == {"IDLE", "DRAIN"}
    assert not (fleet.slurm.folder / "orders").exists()
    fleet.update("node1", state="resume")
    fleet.until_recovered("node1")


def test_what_slurm_conf_drains_is_neither_repaired_nor_opened(fleet: Fleet) -> None:
    fleet.slurm.stop_controller()
    text = fleet.slurm.conf.read_text(encoding="utf-8")
    begin, mark, end = text.partition("NodeName=node1 ")
    end = end.replace("State=UNKNOWN", 'State=DRAIN Reason="bad DIMM, RMA 4711"', 1)
    fleet.slurm.conf.write_text(f"{begin}{mark}{end}", encoding="utf-8")
    for path in (fleet.slurm.folder / "state").glob("node_state*"):
        path.unlink()
    fleet.slurm.start_controller()
    fleet.until(lambda: fleet.slurm.state("node1") == {"IDLE", "DRAIN"})
    controller = fleet.control(provider=fleet.by_command())

    fleet.machines["node1"].log(REPLACE_XID)

    fleet.until(lambda: "bad DIMM, RMA 4711" in controller.log)
    stays(lambda: fleet.slurm.state("node1") == {"IDLE", "DRAIN"}, 1.0)
    assert "Reason=bad DIMM, RMA 4711\n" in fleet.scontrol("-o", "show", "node", "node1")
    assert not fleet.orders


def test_an_order_whose_answer_a_killed_controller_lost_is_repeated_under_its_token(
    fleet: Fleet,
) -> None:
    first = fleet.control(provider=fleet.by_command())
    fleet.kill_controller_at_next_order()
    fleet.machines["node1"].log(REPLACE_XID)
    fleet.until(lambda: first.process.poll() is not None)

    fleet.control(provider=fleet.by_command(), wait=False)
    fleet.until(lambda: len(fleet.orders) == 2)
    fleet.machines["node1"].renew()

    fleet.until_recovered("node1")
    assert fleet.orders == [["replace", "node1"]] * 2
    assert len(set(fleet.tokens)) == 1


def test_a_controller_that_is_killed_midway_loses_nothing(fleet: Fleet) -> None:
    first = fleet.control(provider=fleet.by_command())
    fleet.machines["node1"].log(REPLACE_XID)
    fleet.until(lambda: is_accepted(fleet, "node1"))

    first.kill()
    fleet.machines["node1"].renew()
    fleet.control(provider=fleet.by_command(), wait=False)

    fleet.until_recovered("node1")
    assert len(fleet.orders) == 1


def is_accepted(fleet: Fleet, node: str) -> bool:
    """Whether it is stored that the order for a node was accepted."""
    record = fleet.record(node)
    return (
        record is not None
        and record.remediation is not None
        and record.remediation.ordered_at is not None
    )


def test_a_second_controller_stands_by_until_the_first_ends(fleet: Fleet) -> None:
    first = fleet.control(provider=fleet.by_command())
    second = fleet.control(provider=fleet.by_command())
    fleet.machines["node1"].log(REPLACE_XID)
    fleet.until(lambda: fleet.orders)
    assert "quarantined for replacement" not in second.log

    first.kill()
    fleet.machines["node1"].renew()

    fleet.until_recovered("node1")
    assert "node1 rejoined" in second.log


@on_both_versions
def test_a_mark_that_slurmctld_forgot_is_set_again(fleet: Fleet) -> None:
    fleet.control(provider=fleet.by_command())
    fleet.machines["node1"].log(REPLACE_XID)
    fleet.until(lambda: "FAIL" in fleet.slurm.state("node1"))

    fleet.slurm.crash_controller()  # well before it would have saved its state
    fleet.slurm.start_controller()

    fleet.until(lambda: fleet.slurm.state("node1") == {"IDLE", "FAIL"})
    fleet.machines["node1"].renew()
    fleet.until_recovered("node1")
    assert len(fleet.orders) == 1


def test_slurmctld_may_be_away_for_a_while(fleet: Fleet) -> None:
    controller = fleet.control()

    fleet.slurm.stop_controller()
    fleet.machines["node1"].log(REPLACE_XID)
    fleet.until(lambda: "Unable to contact slurm controller" in controller.log)
    fleet.slurm.start_controller()

    fleet.until_recovered("node1")


def test_a_fault_survives_slurm_taking_nodes_back_by_itself(programs, tmp_path) -> None:
    with (
        SlurmCluster(programs, nodes=("node1", "node2"), settings={"ReturnToService": "2"}) as one,
        a_fleet(one, tmp_path) as fleet,
    ):
        fleet.control(provider=fleet.by_command())
        fleet.update("node1", state="down", reason=REPLACE)
        fleet.until(lambda: fleet.orders)

        fleet.machines["node1"].reboot()  # under 2, a node that is only down would be idle now

        stays(lambda: "FAIL" in one.state("node1"), 1.5)
        fleet.machines["node1"].renew()
        fleet.until_recovered("node1")


def test_the_commands_show_and_steer_what_goes_on(fleet: Fleet, capsys) -> None:
    from holdfast.apps.main import run  # noqa: PLC0415 - the command line as a process has it

    fleet.control()
    where = ["--state-dir", str(fleet.state_dir)]

    def call(*argv: str, code: int = 0) -> str:
        assert run([*argv, *where]) == code
        return capsys.readouterr().out

    listed = json.loads(call("nodes", "list", "-o", "json"))
    assert [(node["name"], node["phase"]) for node in listed] == [
        (name, "schedulable") for name in fleet.machines
    ]
    assert call("nodes", "hold", "node1", "--why", "later") == "node1: repairs paused\n"
    assert "later" in call("nodes", "describe", "node1")
    call("nodes", "unhold", "node1")
    shell = [sys.executable, "-m", "holdfast", "nodes", "shell", "node2", *where, "--"]
    said = "echo on $SLURMD_NODENAME; test -t 0 && echo at a terminal; exit 5"
    found = dict(fleet.slurm.environment)
    del found["SLURM_CONF"]
    done = subprocess.run(
        [*shell, "sh", "-c", said], env=found, capture_output=True, check=False, encoding="utf-8"
    )
    assert (done.returncode, done.stdout) == (5, "on node2\n"), done.stderr
    typed = [*shell, "sh", "-c", said]
    done = subprocess.run(
        ["script", "--quiet", "--return", "--command", shlex.join(typed), "/dev/null"],
        env=found, capture_output=True, check=False, encoding="utf-8",
    )  # fmt: skip
    assert (done.returncode, "at a terminal" in done.stdout) == (5, True)
    call("nodes", "reboot", "node1", "--yes", "--wait", "--timeout", "60s")
    (case,) = json.loads(call("incidents", "list", "-o", "json"))
    assert (case["node"], case["state"]) == ("node1", "released")
