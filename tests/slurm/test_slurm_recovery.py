"""Faults on a real Slurm cluster, from the kernel's line to the release, by real processes."""

import json

import pytest
from slurm_fleet_at_work import REBOOT_XID, REPLACE_XID, Fleet, stays

from holdfast.model.names import Reason, SlurmReason

REPLACE, REBOOT, OURS = SlurmReason.REPLACE, SlurmReason.REBOOT, SlurmReason.OURS


def test_a_node_is_replaced_under_its_name_and_its_job_goes_on_elsewhere(fleet: Fleet) -> None:
    fleet.control()
    job = fleet.run_job("-N2")  # on the first ones

    fleet.machines["node1"].log(REPLACE_XID)
    incident = fleet.until_recovered("node1")

    assert incident.reason == Reason.XID_REPLACE
    assert incident.released_at is not None
    assert fleet.is_idle("node1") or "MIXED" in fleet.slurm.state("node1")
    assert fleet.reason("node1") == ""
    orders = (fleet.slurm.folder / "orders").read_text(encoding="utf-8").split()
    assert orders == ["suspend", "node1", "resume", "node1"]
    fleet.until(lambda: fleet.slurm.jobs()[job] == "RUNNING")
    assert [fleet.phase(name) for name in fleet.machines] == ["schedulable"] * 4


def test_a_node_is_rebooted_and_taken_back(fleet: Fleet) -> None:
    fleet.control()
    boot = fleet.slurm.node("node2")["BootTime"]

    fleet.machines["node2"].log(REBOOT_XID)
    incident = fleet.until_recovered("node2")

    assert incident.reason == Reason.XID_REBOOT
    assert fleet.slurm.node("node2")["BootTime"] != boot
    assert (fleet.slurm.folder / "orders").read_text(encoding="utf-8") == "reboot node2\n"


def test_the_reason_says_what_is_done_and_why_while_it_lasts(fleet: Fleet) -> None:
    fleet.control(provider=fleet.by_command())

    fleet.machines["node1"].log(REPLACE_XID)

    fleet.until(lambda: fleet.orders == [["replace", "node1"]])
    assert fleet.slurm.state("node1") == {"IDLE", "FAIL"}
    assert fleet.reason("node1") == f"{REPLACE} {OURS} {Reason.XID_REPLACE}"
    fleet.machines["node1"].renew()
    fleet.until_recovered("node1")
    assert len(fleet.orders) == 1


def test_a_machine_that_only_reboots_is_no_replacement(fleet: Fleet) -> None:
    fleet.control(provider=fleet.by_command())
    fleet.machines["node1"].log(REPLACE_XID)
    fleet.until(lambda: fleet.orders)

    fleet.machines["node1"].reboot()

    stays(lambda: "FAIL" in fleet.slurm.state("node1"), 1.5)
    assert fleet.phase("node1") == "replacing"


@pytest.mark.parametrize(
    ("reason", "orders"),
    [(REPLACE, ["suspend", "node3", "resume", "node3"]), (REBOOT, ["reboot", "node3"])],
)
def test_the_words_of_the_guide_repair_a_node_once_its_job_has_ended(
    fleet: Fleet, reason: str, orders: list[str]
) -> None:
    fleet.control()
    job = fleet.run_job("-N1", "-w", "node3")

    fleet.update("node3", state="fail", reason=reason)

    fleet.until(lambda: fleet.reason("node3").startswith(f"{reason} {OURS}"))
    stays(lambda: fleet.slurm.jobs()[job] == "RUNNING", 1.0)
    assert fleet.phase("node3") == "quarantined"
    fleet.slurm.run("scancel", job)
    incident = fleet.until_recovered("node3")
    wanted = Reason.REQUESTED_REPLACE if reason == REPLACE else Reason.REQUESTED_REBOOT
    assert incident.reason == wanted
    assert (fleet.slurm.folder / "orders").read_text(encoding="utf-8").split() == orders


def test_state_down_asks_for_the_repair_at_once(fleet: Fleet) -> None:
    fleet.control()
    job = fleet.run_job("-N1", "-w", "node3")

    fleet.update("node3", state="down", reason=REBOOT)

    fleet.until_recovered("node3")
    assert fleet.slurm.jobs()[job] != "COMPLETED"
    assert (fleet.slurm.folder / "orders").read_text(encoding="utf-8") == "reboot node3\n"


@pytest.mark.parametrize("said", ["action:replace", "Action: Reboot", "Action:Replace."])
def test_what_is_nearly_a_request_is_told_and_left_alone(fleet: Fleet, said: str) -> None:
    controller = fleet.control()

    fleet.update("node1", state="fail", reason=said)

    fleet.until(lambda: "to the letter" in controller.log)
    stays(lambda: fleet.reason("node1") == said, 1.0)
    assert fleet.phase("node1") == "schedulable"
    assert controller.log.count("to the letter") == 1


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


def test_a_node_that_dies_is_replaced_after_its_silence(fleet: Fleet) -> None:
    fleet.control(nodes='heartbeat_timeout = "2s"')
    job = fleet.run_job("-N2")  # on the first ones

    fleet.machines["node1"].power_off()
    incident = fleet.until_recovered("node1")

    assert incident.reason == Reason.NODE_SILENT
    fleet.until(lambda: fleet.slurm.jobs()[job] == "RUNNING")


def test_a_controller_that_is_killed_midway_loses_nothing(fleet: Fleet) -> None:
    first = fleet.control(provider=fleet.by_command())
    fleet.machines["node1"].log(REPLACE_XID)
    fleet.until(lambda: fleet.orders)

    first.kill()
    fleet.machines["node1"].renew()
    fleet.control(provider=fleet.by_command(), wait=False)

    fleet.until_recovered("node1")
    assert len(fleet.orders) == 1


def test_a_second_controller_stands_by_until_the_first_ends(fleet: Fleet) -> None:
    first = fleet.control(provider=fleet.by_command())
    second = fleet.control(provider=fleet.by_command())
    fleet.machines["node1"].log(REPLACE_XID)
    fleet.until(lambda: fleet.orders)
    assert "needs replace" not in second.log

    first.kill()
    fleet.machines["node1"].renew()

    fleet.until_recovered("node1")
    assert "node1 is back" in second.log


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
    from conftest import a_fleet  # noqa: PLC0415 - the folder's own

    from holdfast.testing.slurm_cluster import SlurmCluster  # noqa: PLC0415

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


def test_the_commands_show_and_steer_what_goes_on(fleet: Fleet, capsys, monkeypatch) -> None:
    from holdfast.apps.main import run  # noqa: PLC0415 - the command line as a process has it

    monkeypatch.setenv("PATH", fleet.slurm.environment["PATH"])
    fleet.control()
    where = ["--state-dir", str(fleet.state_dir)]

    def call(*argv: str, code: int = 0) -> str:
        assert run([*argv, *where]) == code
        return capsys.readouterr().out

    listed = json.loads(call("nodes", "list", "-o", "json"))
    assert [(node["name"], node["phase"]) for node in listed] == [
        (name, "schedulable") for name in fleet.machines
    ]
    assert call("nodes", "hold", "node1", "--why", "later") == "node1: held\n"
    assert "later" in call("nodes", "describe", "node1")
    call("nodes", "unhold", "node1")
    call("nodes", "reboot", "node1", "--yes", "--wait", "--timeout", "60s")
    (case,) = json.loads(call("incidents", "list", "-o", "json"))
    assert (case["node"], case["state"]) == ("node1", "released")
    assert run(["nodes", "check", "node1", "--yes", *where]) == 1
    assert "no deep health check on Slurm" in capsys.readouterr().err
