"""Nodes of stragglers on a real Slurm: the supervisor reports them, and the job is not stopped."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from slurm_fleet_at_work import Fleet, a_fleet, on_newer_version, stays
from supervised_cluster import Supervised, skip_without_compiler

from holdfast.model.names import Reason
from tests.engines.slurm_cluster import SlurmCluster, SlurmPrograms

CHECK = """
import json, os, pathlib, sys
with open(pathlib.Path(sys.argv[1]) / "runs", "a") as runs:
    runs.write(os.environ["NODE_NAME"] + chr(10))
pathlib.Path(os.environ["HOLDFAST_CHECK_RESULT"]).write_text(json.dumps({"summary": "passed"}))
"""

SLOW = (
    "holdfast: StragglerFound: round 1: rank 1 on $slow-4711-0a1b2c is slow: its own part of a "
    "step takes 1.31x the median of the other ranks"
)

TRAINS = """
srun -N2 --auto-resume=1 sh -c '
    echo attempt ${{HOLDFAST_ATTEMPT-0}} on $SLURMD_NODENAME
    for slow in node3 node-of-nobody node2; do
        [ "$SLURM_PROCID$HOLDFAST_ATTEMPT" = 0 ] && echo "{line}"
        sleep 1
    done
    while [ ! -e {folder}/end$HOLDFAST_ATTEMPT ]; do sleep 0.2; done
    exit $(cat {folder}/end$HOLDFAST_ATTEMPT)
'
echo code $?
"""


@dataclass
class World:
    """Three nodes with a controller that checks the nodes of stragglers."""

    cluster: Supervised
    fleet: Fleet

    def end_attempt(self, name: str, code: int) -> None:
        (self.fleet.folder / name).write_text(str(code), encoding="utf-8")

    @property
    def checked(self) -> list[str]:
        runs = self.fleet.folder / "runs"
        return runs.read_text(encoding="utf-8").split() if runs.exists() else []


@pytest.fixture
def world(programs: SlurmPrograms, tmp_path: Path) -> Iterator[World]:
    skip_without_compiler(programs)
    settings = {"ReturnToService": "2"}
    names = ("node1", "node2", "node3")
    with (
        SlurmCluster(programs, nodes=names, gpus=2, settings=settings) as slurm,
        a_fleet(slurm, tmp_path) as fleet,
    ):
        cluster = Supervised(slurm, programs, tmp_path)
        done = cluster.install()
        assert done.returncode == 0, done.stderr
        cluster.use_times(requeue="60s")
        slurm.run("scontrol", "reconfigure")
        command = json.dumps([sys.executable, "-c", CHECK, str(fleet.folder)])
        fleet.control(
            provider=f"{fleet.by_command()}\n[slurm.check]\ncommand = {command}\n"
            '[jobs]\nstraggler_action = "pair-test"'
        )
        yield World(cluster, fleet)


def until_suspect(world: World, job: str) -> None:
    """Wait until ``node2`` is suspect; the lines about nodes beside the step lead to nothing."""
    cluster, fleet = world.cluster, world.fleet
    cluster.until_commented(job, "straggler=0:node2")
    fleet.until(lambda: fleet.phase("node2") == "quarantined")
    stays(lambda: fleet.slurm.jobs()[job] == "RUNNING", 2.0)
    assert {fleet.phase(name) for name in ("node1", "node3")} == {"schedulable"}
    log = fleet.controllers[0].log
    assert f"JobStragglerFound: job/{job}: the other ranks wait for one on node2" in log
    assert f"StragglerSuspected: node2 is suspect: job/{job} attempt 0 reports" in log


@on_newer_version
def test_the_node_is_checked_after_the_job_which_is_not_interrupted(world: World) -> None:
    cluster, fleet = world.cluster, world.fleet
    script = TRAINS.format(folder=fleet.folder, line=SLOW)
    job = cluster.submit("-N2", "-w", "node1,node2", "--exclusive", script=script)
    until_suspect(world, job)

    world.end_attempt("end", 0)
    assert "code 0" in cluster.ended(job)
    fleet.until(lambda: world.checked == ["node2"])
    [incident] = fleet.incidents
    assert (incident.node, incident.reason) == ("node2", Reason.STRAGGLER_FOUND)
    assert fleet.orders == []


@on_newer_version
def test_the_next_attempt_of_a_step_runs_without_the_node(world: World) -> None:
    cluster, fleet = world.cluster, world.fleet
    script = TRAINS.format(folder=fleet.folder, line=SLOW)
    job = cluster.submit("-N3", "--exclusive", "--comment=mode=step", script=script)
    until_suspect(world, job)

    world.end_attempt("end", 3)
    cluster.until_said(job, "attempt 1 on node3")
    world.end_attempt("end1", 0)
    output = cluster.ended(job)
    assert "code 0" in output
    assert "attempt 1 on node1" in output
    assert "attempt 1 on node2" not in output
    assert "straggler=" not in cluster.comment(job)
    fleet.until(lambda: world.checked == ["node2"])
    assert fleet.orders == []
