"""What commands show of the nodes of a real Slurm cluster."""

import json
from typing import Any

import pytest
from slurm_fleet_at_work import Fleet, on_both_versions

from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.main import run
from holdfast.model.names import HealthStatus


@on_both_versions
def test_nodes_list_shows_who_closed_a_node_and_which_jobs_run_on_it(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet.control()
    wide = fleet.run_job("-N2", "-wnode[1-2]", "-n2")
    narrow = fleet.run_job("-N1", "-wnode2", "-n1")
    fleet.update("node1", state="fail", reason="broken fan")
    fleet.update("node3", state="drain", reason="cabling")

    def listed(*options: str) -> str:
        capsys.readouterr()
        assert run(["nodes", "list", *options, "--state-dir", str(fleet.state_dir)]) == 0
        return capsys.readouterr().out

    nodes: dict[str, Any] = {one["name"]: one for one in json.loads(listed("-o", "json"))}
    assert [nodes[name]["health_status"] for name in ("node1", "node2", "node3")] == [
        HealthStatus.UNSCHEDULABLE, HealthStatus.SCHEDULABLE, HealthStatus.UNSCHEDULABLE,
    ]  # fmt: skip
    assert nodes["node1"]["closed"] == "root set it to FAIL in Slurm: broken fan"
    assert nodes["node3"]["closed"] == "root set it to DRAIN in Slurm: cabling"
    assert (nodes["node1"]["job"], nodes["node1"]["rank"]) == (f"job/{wide}", 0)
    assert (nodes["node2"]["job"], nodes["node2"]["rank"]) == (f"job/{wide},job/{narrow}", None)
    assert (nodes["node4"]["job"], nodes["node4"]["rank"]) == ("", None)
    rows = {line.split()[0]: line for line in listed("-o", "wide").splitlines() if line}
    assert "closed" in rows["node1"]
    assert f"0/job/{wide}" in rows["node1"]
    assert "broken fan" in rows["node1"]
    assert "schedulable" in rows["node4"]

    capsys.readouterr()
    assert run(["status", "-o", "json", "--state-dir", str(fleet.state_dir)]) == ExitCode.OK
    status = json.loads(capsys.readouterr().out)
    assert (status["attention"], status["fleets"][0]["name"]) == ([], "slurm")
    assert sum(status["fleets"][0]["nodes"].values()) == len(nodes)
    assert run(["goodput", "-o", "json", "--state-dir", str(fleet.state_dir)]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out) == {"jobs": [], "causes": []}
