"""Training jobs on a real Slurm cluster go on after faults, on other nodes and on their own."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from final_states import FinalStates
from slurm_fleet_at_work import REBOOT_XID, REPLACE_XID, Fleet, a_fleet, on_both_versions, stays
from training_at_work import Training

from holdfast.apps.main import run
from holdfast.model.jobs import FailureKind, JobPhase
from holdfast.model.names import Reason
from tests.engines.slurm_cluster import SlurmCluster, SlurmPrograms

GPUS = "--gres=gpu:2"
AFFLICTED = {
    "gres": REPLACE_XID, "two-on-a-node-1": REPLACE_XID, "xid-reboot": REBOOT_XID,
    "faults-spent": REPLACE_XID,
}  # fmt: skip
"""What the kernel says on a node of the job of a row."""


@pytest.fixture
def wide(programs: SlurmPrograms, tmp_path: Path) -> Iterator[Fleet]:
    """Twenty nodes with GPUs; the last of them has DCGM."""
    names = [f"node{number}" for number in range(1, 21)]
    with (
        SlurmCluster(programs, nodes=names, gpus=2, settings={"SuspendTimeout": "1"}) as slurm,
        a_fleet(slurm, tmp_path, dcgm=names[-1]) as fleet,
    ):
        yield fleet


@on_both_versions
def test_a_job_goes_on_elsewhere_from_its_checkpoint(
    fleet: Fleet,
    final: FinalStates,
    capsys: pytest.CaptureFixture[str],
) -> None:
    controller = fleet.control(provider=fleet.by_command())
    job = Training(fleet)
    job.until_step(20)
    lost, kept = job.nodes()

    fleet.machines[lost].log(REPLACE_XID)

    job.until_attempt(1)
    assert lost not in job.nodes()
    assert kept in job.nodes()
    assert all(step >= 15 for _, step in job.begun(1))
    job.until_done()
    first, _ = job.memory.record.attempts
    assert first.failure is not None
    assert (first.failure.kind, first.failure.node) == (FailureKind.HARDWARE, lost)
    assert first.failure.reason == Reason.XID_REPLACE
    assert controller.log.count("failed, retrying") == 0
    fleet.until(lambda: "No reservations" in fleet.scontrol("show", "reservation"))
    where = ["--state-dir", str(fleet.state_dir)]
    assert run(["jobs", "list", "-o", "json", *where]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["name"], listed["phase"], listed["hardware_retries"]) == (
        job.name, "succeeded", 1,
    )  # fmt: skip
    assert run(["jobs", "describe", job.id, *where]) == 0
    output = capsys.readouterr().out
    assert "--open-mode is 'truncate'" in output
    assert Reason.XID_REPLACE in output
    assert run(["jobs", "cancel", job.id, *where]) == 1
    assert f"{job.name} is no longer running" in capsys.readouterr().err
    fleet.machines[lost].renew()
    final.check(fleet, "xid-replace", node=lost, job=job.id)


def test_a_crash_is_not_blamed_on_the_job_before_its_nodes_have_reported(fleet: Fleet) -> None:
    fleet.control(provider=fleet.by_command())
    job = Training(fleet)
    job.until_step(5)
    bad = job.nodes()[-1]

    with fleet.machines[bad].paused("agent"):
        fleet.machines[bad].log(REPLACE_XID)
        job.end_a_rank()
        fleet.until(lambda: job.memory.record.phase is JobPhase.STOPPING)
        stays(lambda: job.memory.record.phase is JobPhase.STOPPING, 2)

    job.until_attempt(1)
    (first, *_) = job.memory.record.attempts
    assert first.failure is not None
    assert (first.failure.kind, first.failure.node) == (FailureKind.HARDWARE, bad)


@on_both_versions
def test_every_kind_of_batch_job_is_resumed_and_no_other_is_touched(
    wide: Fleet, final: FinalStates
) -> None:
    # Two jobs stay where nothing else may, until the test lets them go.
    controller = wide.control(unavailable=20, drain="1h")
    stepwise = wide.slurm.submit(
        "-N1", GPUS, "--comment=auto-resume=1 mode=step", script="srun sleep 600"
    )
    request = ("--comment=auto-resume=1", GPUS)
    array = wide.slurm.submit(*request, "--array=1-2", script="srun sleep 600")
    parts = ("-N1", *request, ":", "-N1", GPUS, "--wrap", "srun --het-group=0,1 sleep 600")
    het = wide.slurm.run("sbatch", "--parsable", *parts).strip()
    names = (stepwise, f"{array}_1", f"{array}_2", f"{het}+0", f"{het}+1")
    wide.until(lambda: all(runs(wide, name) for name in names))
    at = {name: runs(wide, name) for name in (f"{array}_1", f"{het}+1")}
    supervised = runs(wide, stepwise)
    jobs, killed = trainings(wide)
    for job in jobs.values():
        job.until_step(5)
    bad = {fault: job.nodes()[-1] for fault, job in jobs.items()}
    assert bad["two-on-a-node-1"] == bad["two-on-a-node-2"]

    killed.end_a_rank()
    with controller.paused():  # else the job may be stopped for the fault before its rank ends
        jobs["crash-with-fault"].end_a_rank()
        wide.machines[bad["crash-with-fault"]].log(REPLACE_XID)
        wide.until(lambda: wide.has_reported(bad["crash-with-fault"], Reason.XID_REPLACE))
    for fault, xid in AFFLICTED.items():
        wide.machines[bad[fault]].log(xid)
    wide.break_memory()
    for node in (supervised, *at.values()):
        wide.machines[node].log(REPLACE_XID)

    for fault in {*AFFLICTED, "crash-with-fault"} - {"faults-spent"}:
        jobs[fault].until_attempt(1)
    wide.until(lambda: runs(wide, f"{array}_1", restarts=1))
    wide.until(lambda: runs(wide, f"{het}+0", restarts=1) and runs(wide, f"{het}+1", restarts=1))
    assert runs(wide, f"{array}_2", restarts=0)
    assert runs(wide, stepwise) == supervised, "its supervisor has not asked"
    asks = "comment=auto-resume=1 mode=step requeue-request=requeue"
    wide.scontrol("update", f"jobid={stepwise}", asks)
    wide.until(lambda: runs(wide, stepwise, restarts=1) not in ("", supervised))
    assert "requeue-request=" not in wide.slurm.run("squeue", "-h", "-j", stepwise, "-o", "%k")
    wide.until(lambda: wide.phase(bad["dcgm-ecc"]) == "quarantined")
    for job in jobs.values():
        job.let_end()
    for fault in jobs.keys() - {"faults-spent"}:
        jobs[fault].until_done()
    wide.until(lambda: killed.memory.record.phase is JobPhase.FAILED)
    assert "exited with code 137" in killed.memory.record.reason
    for job in (killed, jobs["bystander"], jobs["dcgm-ecc"]):
        assert job.begun(1) == []
    crash = jobs["crash-with-fault"].memory.record.attempts[0].failure
    assert crash is not None
    assert crash.kind is FailureKind.HARDWARE
    for fault, job in jobs.items():
        final.check(wide, fault, node="" if fault == "bystander" else bad[fault], job=job.id)
    final.check(wide, "killed-process", job=killed.id)
    final.check(wide, "supervised", node=supervised, job=stepwise)
    for fault, (job, node) in zip(("array", "heterogeneous"), at.items(), strict=True):
        final.check(wide, fault, node=node, job=job)
    final.check(wide, "array-other", job=f"{array}_2")
    wide.until(lambda: {wide.phase(node) for node in wide.machines} == {"schedulable"})
    wide.until(lambda: "No reservations" in wide.scontrol("show", "reservation"))


def trainings(wide: Fleet) -> tuple[dict[str, Training], Training]:
    """One for each row of the table, and one of which a process is killed; none ends by itself."""
    last, ecc = "--exclude=node[1-18]", "--nodelist=node20"
    jobs = {
        "two-on-a-node-1": Training(wide, last, ranks=1, holds=True),
        "two-on-a-node-2": Training(wide, last, ranks=1, holds=True),
        "dcgm-ecc": Training(wide, GPUS, ecc, ranks=1, holds=True),
        "gres": Training(wide, GPUS, "--no-requeue", holds=True),
        "crash-with-fault": Training(wide, GPUS, holds=True),
        "xid-reboot": Training(wide, GPUS, ranks=1, holds=True),
        "faults-spent": Training(
            wide, GPUS, ranks=1, request="auto-resume=1 max-retry=0", holds=True
        ),
        "bystander": Training(wide, GPUS, ranks=1, request="auto-resume=0", holds=True),
    }
    killed = Training(wide, GPUS, holds=True)
    killed.until_step(5)
    return jobs, killed


def runs(fleet: Fleet, job: str, restarts: int = 0) -> str:
    """The node of a job, if it runs and was requeued so often."""
    lines = fleet.slurm.run("squeue", "-h", "-O", "JobArrayID:|,State:|,RestartCnt:|,NodeList:|")
    for line in lines.splitlines():
        name, state, count, node, _ = line.split("|")
        if (name, state, int(count)) == (job, "RUNNING", restarts):
            return node
    return ""
