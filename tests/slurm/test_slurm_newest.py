"""The newest Slurm: requeues that it expedites, and a smoke test of what Holdfast needs of it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_fleet_at_work import REPLACE_XID, Fleet, on_newest_version
from training_at_work import Training

from holdfast.model.jobs import FailureKind
from holdfast.model.names import Reason
from tests.engines.slurm_cluster import SlurmCluster, SlurmPrograms

RECORDED = Path(__file__).parents[1] / "recordings/nvidia-smi/healthy.xml"
ALLOWS = "reboot_from_controller,idle_on_node_suspend,enable_expedited_requeue"
FAILS_ONCE = """\
srun --ntasks-per-node=1 sh -c 'echo ${{SLURM_RESTART_COUNT:-0}} $SLURMD_NODENAME >> {folder}/ran'
while [ ${{SLURM_RESTART_COUNT:-0}} -eq 0 ]; do [ ! -e {folder}/end ] || exit 1; sleep 0.1; done
"""


@pytest.fixture
def slurm(programs: SlurmPrograms, tmp_path: Path) -> Iterator[SlurmCluster]:
    """Four nodes with GPUs, whose Epilog is that of the guide."""
    smi = tmp_path / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\ncat {RECORDED}\n", encoding="utf-8")
    script = tmp_path / "epilog"
    script.write_text(
        f"#!/bin/sh\n{sys.executable} -m holdfast check epilog"
        f" --config {tmp_path}/$SLURMD_NODENAME.toml --report-dir {tmp_path}/shared"
        f" --lock {tmp_path}/$SLURMD_NODENAME.lock 2>> {tmp_path}/said\n[ $? -ne 1 ]\n",
        encoding="utf-8",
    )
    for program in (smi, script):
        program.chmod(0o755)
    settings = {"SuspendTimeout": "1", "Epilog": str(script), "SlurmctldParameters": ALLOWS}
    with SlurmCluster(programs, settings=settings) as cluster:
        for name, machine in cluster.machines.items():
            text = f'root = "{machine.root}"\ncommand_path = "{tmp_path}"\n'
            (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
        yield cluster


@on_newest_version
def test_a_job_whose_epilog_finds_a_fault_starts_elsewhere_before_all_others(fleet: Fleet) -> None:
    fleet.control(provider=fleet.by_command())
    script = FAILS_ONCE.format(folder=fleet.folder)
    job = fleet.run_job("-N2", "--exclusive", "--requeue=expedite", script=script)
    fleet.until(lambda: len(ran(fleet)) == 2)
    bad = ran(fleet)[0][1]
    others = fleet.slurm.submit("-N3", "--exclusive", script="true")
    config = fleet.folder / f"{bad}.toml"
    config.write_text(f"{config.read_text('utf-8')}[expected]\ngpus = 16\n", encoding="utf-8")

    (fleet.folder / "end").touch()

    fleet.until(lambda: len(ran(fleet)) == 4)
    assert [run for run, _ in ran(fleet)] == ["0", "0", "1", "1"]
    assert bad not in {name for _, name in ran(fleet)[2:]}
    fleet.until(lambda: fleet.orders == [["reboot", bad]])
    assert fleet.incidents[0].reason == Reason.GPU_COUNT
    fleet.until(lambda: fleet.slurm.jobs()[job] == "COMPLETED")
    fleet.until(lambda: fleet.slurm.jobs()[others] == "COMPLETED")


def ran(fleet: Fleet) -> list[list[str]]:
    """Number of the run and node of each task."""
    path = fleet.folder / "ran"
    return [line.split() for line in path.read_text("utf-8").splitlines()] if path.exists() else []


@on_newest_version
def test_an_auto_resume_job_that_slurm_holds_after_its_failure_resumes(fleet: Fleet) -> None:
    """Slurm holds it, as its Epilog finds nothing; a fault of a node is the cause."""
    controller = fleet.control(provider=fleet.by_command())
    job = Training(fleet, "--requeue=expedite", steps=40)
    job.until_step(5)
    lost = job.nodes()[0]
    with controller.paused():
        fleet.machines[lost].log(REPLACE_XID)
        fleet.until(lambda: fleet.has_reported(lost, Reason.XID_REPLACE))
        job.end_a_rank()
        fleet.until(lambda: job.state == "REQUEUE_HOLD")

    fleet.until(lambda: fleet.orders == [["replace", lost]])
    job.until_done()
    first, second = job.memory.record.attempts
    assert first.failure is not None
    assert (first.failure.kind, first.failure.node) == (FailureKind.HARDWARE, lost)
    assert second.failure is None
