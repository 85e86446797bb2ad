"""Deep health checks as jobs, on a real Slurm: nobody gets a node before it has passed."""

import json
import re
import sys
from collections.abc import Iterator

import pytest
from slurm_fleet_at_work import REPLACE_XID, Fleet, on_both_versions, stays

from holdfast.adapters.slurm.commands.checks import PREFIX
from holdfast.apps.main import run
from holdfast.model.names import Reason, SlurmReason
from tests.engines.slurm_cluster import SlurmCluster

CHECK = """
import json, os, pathlib, sys, time
folder, node = pathlib.Path(sys.argv[1]), os.environ["NODE_NAME"]
with open(folder / "runs", "a") as runs:
    runs.write(node + chr(10))
while (folder / f"hold-{node}").exists():
    time.sleep(0.05)
bad = (folder / f"bad-{node}").exists()
said = {"summary": "failed: disk: too slow" if bad else "passed", "measured": {"disk_mb_per_s": 7}}
pathlib.Path(os.environ["HOLDFAST_CHECK_RESULT"]).write_text(json.dumps(said))
sys.exit(int(bad))
"""


@pytest.fixture
def slurm(programs) -> Iterator[SlurmCluster]:
    with SlurmCluster(programs, nodes=("node1", "node2", "node3"), gpus=2) as cluster:
        yield cluster


def checked(fleet: Fleet, *command: str) -> str:
    """The provider, and a check that does what the files of the fleet say."""
    argv = list(command) or [sys.executable, "-c", CHECK, str(fleet.folder)]
    return f"{fleet.by_command()}\n[slurm.check]\ncommand = {json.dumps(argv)}"


def made(fleet: Fleet, node: str) -> int:
    return (fleet.folder / "runs").read_text(encoding="utf-8").split().count(node)


def left(fleet: Fleet) -> list[str]:
    """Reservations of checks."""
    said = fleet.scontrol("-o", "show", "reservation")
    return re.findall(rf"{PREFIX}\w+", said)


def ask(fleet: Fleet, capsys, node: str) -> None:
    assert run(["check", "deep", node, "--yes", "--state-dir", str(fleet.state_dir)]) == 0
    capsys.readouterr()


@on_both_versions
def test_a_node_that_joins_is_checked_first_whatever_becomes_of_the_controller(
    fleet: Fleet,
) -> None:
    hold = fleet.folder / "hold-node1"
    hold.touch()
    settings = {"nodes": "deep_check_on_start = true", "provider": checked(fleet), "wait": False}
    first = fleet.control(**settings)
    fleet.until(lambda: fleet.phase("node2") == fleet.phase("node3") == "schedulable")
    job = fleet.slurm.submit("-N1", "-w", "node1", script="true")

    fleet.until(lambda: fleet.slurm.state("node1") == {"ALLOCATED", "FAIL"} and not left(fleet))
    assert fleet.reason("node1").startswith(f"{SlurmReason.HOLDFAST} checking")
    first.kill()
    fleet.control(**settings)
    stays(lambda: fleet.slurm.jobs()[job] == "PENDING", 1.0)
    hold.unlink()

    fleet.until(lambda: fleet.slurm.jobs()[job] == "COMPLETED")
    assert [made(fleet, node) for node in fleet.machines] == [1, 1, 1]
    record = fleet.record("node1")
    assert [(one.passed, one.measured) for one in record.checks] == [(True, {"disk_mb_per_s": 7})]
    assert fleet.orders == []


@on_both_versions
def test_a_node_that_fails_or_never_reports_back_is_replaced_and_checked_again(
    fleet: Fleet,
) -> None:
    (fleet.folder / "bad-node1").touch()
    (fleet.folder / "hold-node2").touch()
    nodes = 'deep_check_on_start = true\ndeep_check_timeout = "8s"'
    fleet.control(nodes=nodes, provider=checked(fleet), wait=False)
    fleet.until(lambda: len(fleet.orders) == 2)

    reasons = {one.node: one.reason for one in fleet.incidents}
    assert reasons == {"node1": Reason.CHECK_FAILED, "node2": Reason.CHECK_NEVER_ENDED}
    assert sorted(fleet.orders) == [["replace", "node1"], ["replace", "node2"]]
    assert (
        fleet.reason("node1") == f"{SlurmReason.REPLACE} {SlurmReason.HOLDFAST} {reasons['node1']}"
    )
    fleet.until(lambda: not left(fleet) and "RUNNING" not in fleet.slurm.jobs().values())
    for name in ("bad-node1", "hold-node2"):
        (fleet.folder / name).unlink()
    for node in ("node1", "node2"):
        fleet.machines[node].renew()
    fleet.until_recovered("node1")
    fleet.until_recovered("node2")
    fleet.until(lambda: all(fleet.is_idle(node) for node in fleet.machines))
    assert made(fleet, "node1") == 2
    fleet.until(lambda: not left(fleet))


@on_both_versions
def test_a_check_that_cannot_be_run_is_reported_and_is_not_the_nodes_fault(
    fleet: Fleet, capsys, monkeypatch
) -> None:
    monkeypatch.setenv("PATH", fleet.slurm.environment["PATH"])
    nodes = 'deep_check_timeout = "1s"'
    controller = fleet.control(nodes=nodes, provider=checked(fleet, "/no/such/check"))
    ask(fleet, capsys, "node1")

    fleet.until(lambda: "exited with 127" in controller.log)

    assert "deep health check of node1" in controller.log
    fleet.until(lambda: {"IDLE", "FAIL"} <= fleet.slurm.state("node1"))
    fleet.until(lambda: "its deep health check has not begun" in controller.log)
    stays(lambda: fleet.phase("node1") == "checking" and not fleet.orders, 1.0)
    assert controller.log.count("exited with 127") == 1


def test_a_node_that_is_drained_before_its_check_is_checked_when_it_is_back(fleet: Fleet) -> None:
    fleet.update("node1", state="drain", reason="cabling")
    nodes = 'deep_check_on_start = true\ndeep_check_timeout = "5s"'
    controller = fleet.control(nodes=nodes, provider=checked(fleet), wait=False)

    fleet.until(lambda: "its deep health check has not begun" in controller.log)
    assert (fleet.phase("node1"), fleet.orders) == ("checking", [])
    fleet.update("node1", state="resume")

    fleet.until(lambda: (one := fleet.record("node1")) and one.checks)
    fleet.until(lambda: fleet.is_idle("node1"))
    assert fleet.orders == []


def test_a_requested_check_waits_for_the_job_on_its_node_and_idle_nodes_go_first(
    fleet: Fleet, capsys, monkeypatch
) -> None:
    monkeypatch.setenv("PATH", fleet.slurm.environment["PATH"])
    controller = fleet.control(provider=checked(fleet))
    job = fleet.run_job("-N1", "-w", "node1", "--exclusive", script="sleep 600")
    ask(fleet, capsys, "node1")
    fleet.until(lambda: f"node1: deep health check waiting for job {job}" in controller.log)

    ask(fleet, capsys, "node2")
    fleet.until(lambda: (one := fleet.record("node2")) and one.checks)

    assert fleet.slurm.jobs()[job] == "RUNNING"
    assert fleet.phase("node1") == "schedulable"
    fleet.slurm.run("scancel", job)
    fleet.until(lambda: (one := fleet.record("node1")) and one.checks)
    assert controller.log.count("node1: deep health check waiting for job") == 1
    assert fleet.orders == []


@on_both_versions
def test_a_job_that_waits_is_given_the_node_that_has_passed_its_check(fleet: Fleet) -> None:
    fleet.control(nodes="deep_check_on_start = true", provider=checked(fleet), wait=False)
    fleet.until(lambda: all((one := fleet.record(node)) and one.checks for node in fleet.machines))
    job = fleet.run_job("-N3", "--exclusive", "--comment=auto-resume=1", script="srun sleep 600")
    hungry = fleet.slurm.submit("-N1", "--exclusive", script="sleep 600")
    fleet.machines["node2"].log(REPLACE_XID)
    fleet.until(lambda: fleet.orders == [["replace", "node2"]])

    fleet.machines["node2"].renew()

    fleet.until(lambda: fleet.slurm.jobs()[job] == "RUNNING")
    assert made(fleet, "node2") == 2
    assert fleet.slurm.jobs()[hungry] == "PENDING"
