"""Checks that Slurm calls by itself, on a real cluster."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from final_states import FinalStates
from slurm_fleet_at_work import Fleet, on_both_versions

from holdfast.model.names import Reason, SlurmReason
from tests.engines.slurm_cluster import SlurmCluster, SlurmPrograms

SCHEDULER = "bf_interval=1,sched_interval=2,batch_sched_delay=0,nohold_on_prolog_fail"
DIAG = Path(__file__).parents[1] / "recordings/dcgm/diag4-memory.json"


@pytest.fixture
def slurm(programs: SlurmPrograms, tmp_path: Path) -> Iterator[SlurmCluster]:
    """All nodes have our Prolog; the GPUs of a node with a file ``bad-NODE`` are bad."""
    dcgmi = tmp_path / "dcgmi"
    dcgmi.write_text(
        f"#!/bin/sh\nif [ -e {tmp_path}/bad-$SLURMD_NODENAME ]; then cat {DIAG}; exit 226; fi\n"
        f"cat {DIAG.with_name('diag4-pass.json')}\n",
        encoding="utf-8",
    )
    script = tmp_path / "prolog"
    script.write_text(
        f"#!/bin/sh\nexec {sys.executable} -m holdfast check prolog --gpus all"
        f" --config {tmp_path}/$SLURMD_NODENAME.toml --lock {tmp_path}/$SLURMD_NODENAME.lock"
        f" --report-dir {tmp_path}/shared 2>> {tmp_path}/said\n",
        encoding="utf-8",
    )
    for program in (dcgmi, script):
        program.chmod(0o755)
    settings = {"Prolog": str(script), "SchedulerParameters": SCHEDULER}
    with SlurmCluster(programs, nodes=("node1", "node2"), settings=settings) as cluster:
        for name, machine in cluster.machines.items():
            (tmp_path / f"{name}.toml").write_text(
                f'root = "{machine.root}"\ncommand_path = "{tmp_path}"\n[expected]\ngpus = 8\n',
                encoding="utf-8",
            )
        yield cluster


@on_both_versions
def test_a_job_goes_elsewhere_if_its_node_fails_before_it_and_the_node_is_replaced(
    fleet: Fleet, final: FinalStates
) -> None:
    fleet.control(provider=fleet.by_command())
    bad = fleet.folder / "bad-node1"
    bad.touch()

    job = fleet.slurm.submit("-N1", script="echo $SLURMD_NODENAME; sleep 1")

    fleet.until(lambda: fleet.orders == [["replace", "node1"]])
    incident = fleet.incidents[0]
    assert (
        fleet.reason("node1") == f"{SlurmReason.REPLACE} {SlurmReason.HOLDFAST} {incident.reason}"
    )
    fleet.until(lambda: fleet.slurm.jobs()[job] == "COMPLETED")
    assert (fleet.slurm.folder / f"slurm-{job}.out").read_text(encoding="utf-8") == "node2\n"
    assert "node1: dcgm: failed" in (fleet.folder / "said").read_text(encoding="utf-8")

    bad.unlink()
    fleet.machines["node1"].renew()
    fleet.until_recovered("node1")
    fleet.until(lambda: fleet.is_idle("node1"))
    fleet.slurm.run("srun", "-w", "node1", "true")
    final.check(fleet, "prolog", node="node1", job=job)


def test_without_an_agent_a_node_that_lacks_gpus_is_drained_with_our_word(
    programs: SlurmPrograms, tmp_path: Path
) -> None:
    script, conf = tmp_path / "health", tmp_path / "conf"
    script.write_text(
        f"#!/bin/sh\nexport SLURM_CONF=$(cat {conf}) PATH={programs.path}\n"
        f"exec {sys.executable} -m holdfast check health --config {tmp_path}/check.toml"
        f" --agent-dir {tmp_path} 2>> {tmp_path}/said\n",
        encoding="utf-8",
    )
    script.chmod(0o755)
    (tmp_path / "check.toml").write_text("[expected]\ngpus = 2\n", encoding="utf-8")
    settings = {"HealthCheckProgram": str(script), "HealthCheckInterval": "1"}
    with SlurmCluster(programs, nodes=("node1",), settings=settings) as slurm:
        conf.write_text(str(slurm.conf), encoding="utf-8")

        slurm.until(lambda: "DRAIN" in slurm.state("node1"))

        said = f"{SlurmReason.HOLDFAST} {Reason.GPU_COUNT}: 0 of 2 GPUs are present"
        assert slurm.node("node1")["Reason"] == said
