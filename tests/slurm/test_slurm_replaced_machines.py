"""What has to be done for a machine that has replaced another, on a real cluster."""

import json
from collections.abc import Iterator

import pytest
from slurm_fleet_at_work import REPLACE_XID, Fleet, on_both_versions, stays

from tests.engines.slurm_cluster import SlurmCluster, SlurmPrograms

RENEWED = """
echo "$1" >> {folder}/renewed
[ -e {folder}/ready ] || {{ echo "no home directory" >&2; exit 3; }}
"""


@pytest.fixture
def slurm(programs: SlurmPrograms) -> Iterator[SlurmCluster]:
    """With the times of a real cluster: what Slurm sees to by itself takes minutes."""
    settings = {"SlurmdTimeout": "300", "ReturnToService": "2"}
    with SlurmCluster(programs, nodes=("node1", "node2"), settings=settings) as cluster:
        yield cluster


def with_command(fleet: Fleet) -> str:
    script = fleet.folder / "after"
    script.write_text(f"#!/bin/sh\n{RENEWED.format(folder=fleet.folder)}", encoding="utf-8")
    script.chmod(0o755)
    return f"after_replacement = {json.dumps([str(script)])}\n{fleet.by_command()}"


def renewed(fleet: Fleet) -> list[str]:
    path = fleet.folder / "renewed"
    return path.read_text(encoding="utf-8").split() if path.exists() else []


def test_no_job_gets_a_new_machine_before_the_site_has_prepared_it(fleet: Fleet) -> None:
    first = fleet.control(nodes='join_timeout = "2s"', provider=with_command(fleet))
    fleet.machines["node1"].log(REPLACE_XID)
    fleet.until(lambda: fleet.orders)
    assert renewed(fleet) == []

    fleet.machines["node1"].renew()
    reported = "the command after the replacement of node1 failed, retrying"
    fleet.until(lambda: reported in first.log)
    assert "ended with 3: no home directory" in first.log
    stays(lambda: "FAIL" in fleet.slurm.state("node1"), 3.0)  # longer than join_timeout
    assert fleet.orders == [["replace", "node1"]]
    assert renewed(fleet) == ["node1"]
    first.kill()
    (fleet.folder / "ready").touch()
    fleet.control(provider=with_command(fleet), wait=False)

    fleet.until_recovered("node1")
    assert renewed(fleet) == ["node1", "node1"]
    assert fleet.orders == [["replace", "node1"]]


@on_both_versions
def test_what_was_to_end_on_the_machine_before_holds_no_node_back(fleet: Fleet) -> None:
    program = fleet.slurm.folder / "Epilog"
    program.write_text("#!/bin/sh\n[ $SLURMD_NODENAME != node1 ] || sleep 600\n", encoding="utf-8")
    fleet.control(provider=fleet.by_command(), drain="2s")
    job = fleet.slurm.submit("-N1", "-w", "node1", script="true")
    fleet.until(lambda: "COMPLETING" in fleet.slurm.state("node1"))

    fleet.machines["node1"].log(REPLACE_XID)
    fleet.until(lambda: fleet.orders)
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    fleet.machines["node1"].renew()

    fleet.until_recovered("node1")
    fleet.until(lambda: fleet.is_idle("node1"))
    assert fleet.slurm.jobs()[job] == "COMPLETED"
    assert "update_node: node node1 state set to DOWN" in fleet.slurm.log(lines=1000)
