"""What has to be done for a machine that has replaced another, on a real cluster."""

import json
from collections.abc import Iterator
from datetime import timedelta

import pytest
from slurm_fleet_at_work import REPLACE_XID, Fleet, on_both_versions, stays

from holdfast.adapters.slurm.commands.jobs import JobCommands
from holdfast.adapters.slurm.nodes.views import request_of
from tests.engines.slurm_cluster import SlurmCluster, SlurmPrograms
from tests.ports.builders import NOW

RENEWED = """
echo "$1" >> {folder}/renewed
[ -e {folder}/ready ] || {{ echo "no home directory" >&2; exit 3; }}
"""


@pytest.fixture
def slurm(programs: SlurmPrograms, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmCluster]:
    """With the times of a real cluster: what Slurm sees to by itself takes minutes."""
    settings = {"SlurmdTimeout": "300", "ReturnToService": "2"}
    with SlurmCluster(programs, nodes=("node1", "node2"), settings=settings) as cluster:
        monkeypatch.setenv("PATH", cluster.environment["PATH"])
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


def never_ends(slurm: SlurmCluster) -> str:
    """A job whose Epilog on node1 does not end; returns its ID."""
    program = slurm.folder / "Epilog"
    program.write_text("#!/bin/sh\n[ $SLURMD_NODENAME != node1 ] || sleep 600\n", encoding="utf-8")
    job = slurm.submit("-N1", "-w", "node1", script="true")
    slurm.until(lambda: "COMPLETING" in slurm.state("node1"))
    return job


@on_both_versions
def test_what_was_to_end_on_the_machine_before_holds_no_node_back(fleet: Fleet) -> None:
    fleet.control(provider=fleet.by_command(), drain="2s")
    job = never_ends(fleet.slurm)

    fleet.machines["node1"].log(REPLACE_XID)
    fleet.until(lambda: fleet.orders)
    (fleet.slurm.folder / "Epilog").write_text("#!/bin/sh\n", encoding="utf-8")
    fleet.machines["node1"].renew()

    fleet.until_recovered("node1")
    fleet.until(lambda: fleet.is_idle("node1"))
    assert fleet.slurm.jobs()[job] == "COMPLETED"
    assert "update_node: node node1 state set to DOWN" in fleet.slurm.log(lines=1000)


@on_both_versions
def test_a_node_that_was_drained_meanwhile_stays_so_when_its_jobs_are_forgotten(
    fleet: Fleet,
) -> None:
    fleet.control(provider=fleet.by_command(), drain="2s")
    never_ends(fleet.slurm)
    fleet.machines["node1"].log(REPLACE_XID)
    fleet.until(lambda: fleet.orders)

    fleet.update("node1", state="drain", reason="burnt PSU")
    (fleet.slurm.folder / "Epilog").write_text("#!/bin/sh\n", encoding="utf-8")
    fleet.machines["node1"].renew()

    fleet.until(lambda: "COMPLETING" not in fleet.slurm.state("node1"))
    stays(lambda: "DRAIN" in fleet.slurm.state("node1"), 3.0)
    assert fleet.reason("node1") == "burnt PSU"
    fleet.update("node1", state="resume")
    fleet.until_recovered("node1")


@on_both_versions
@pytest.mark.parametrize("state", ["drain", "fail"])
@pytest.mark.parametrize("reason", ["burnt PSU", "Action:Replace", "Action:Reboot at noon"])
def test_a_job_that_ends_nowhere_leaves_a_node_as_somebody_has_closed_it(
    slurm: SlurmCluster, state: str, reason: str
) -> None:
    """A request is still one, which the controller carries out next."""
    commands = JobCommands(slurm.conf, timedelta(seconds=15))
    never_ends(slurm)
    slurm.run("scontrol", "update", "nodename=node1", f"state={state}", f"reason={reason}")
    before = request_of(commands.nodes("node1")["node1"], NOW)

    commands.clear_node("node1")

    assert slurm.state("node1") == {"DOWN", state.upper()}
    assert slurm.node("node1")["Reason"] == reason
    after = request_of(commands.nodes("node1")["node1"], NOW)
    assert (before and before.verb) == (after and after.verb)
    assert (after is None) is (reason == "burnt PSU")


@on_both_versions
def test_a_job_that_ends_nowhere_leaves_a_node_open_that_nobody_has_closed(
    slurm: SlurmCluster,
) -> None:
    never_ends(slurm)

    JobCommands(slurm.conf, timedelta(seconds=15)).clear_node("node1")

    slurm.until(lambda: slurm.state("node1") == {"IDLE"})
