"""The controller of a Slurm cluster records the checkpoints that a supervisor has moved."""

from pathlib import Path

from slurm_fleet_at_work import a_fleet, on_both_versions
from supervised_cluster import EXPANDS, Supervised, skip_without_compiler
from test_slurm_rollback import saved

from tests.engines.slurm_cluster import SlurmCluster, SlurmPrograms


@on_both_versions
def test_a_checkpoint_that_a_supervisor_moves_is_an_incident(
    programs: SlurmPrograms, tmp_path: Path
) -> None:
    skip_without_compiler(programs)
    settings = {"ReturnToService": "2", "SchedulerParameters": EXPANDS}
    with (
        SlurmCluster(programs, nodes=["node1", "node2"], gpus=2, settings=settings) as slurm,
        a_fleet(slurm, tmp_path) as fleet,
    ):
        cluster = Supervised(slurm, programs, tmp_path)
        done = cluster.install()
        assert done.returncode == 0, done.stderr
        slurm.run("scontrol", "reconfigure")
        controller = fleet.control()
        folder = tmp_path / "checkpoints"
        saved(folder, 1)
        saved(folder, 2).write_bytes(b"not an archive" * 100)
        comment = f"--comment=auto-resume=1 mode=step checkpoint={folder}"

        job = cluster.submit("-N1", comment, script="srun --auto-resume=1 sleep 600")
        fleet.until(lambda: fleet.incidents)

        [incident] = fleet.incidents
        evidence = incident.checkpoint
        assert evidence is not None
        assert (incident.node, incident.job) == ("", f"job/{job}")
        assert (evidence.job, evidence.attempt) == (job, 0)
        assert (evidence.name, evidence.state) == ("iter_0000002", "damaged")
        assert evidence.resumed == "iter_0000001"
        assert "model_optim_rng.pt" in evidence.problems[0]
        assert incident.ended_at is not None

        assert controller.end() == 0
        fleet.control()
        slurm.run("scancel", job)
        again = cluster.submit("-N1", comment, script="srun --auto-resume=1 true")
        cluster.ended(again)
        saved(folder, 3).write_bytes(b"not an archive" * 100)
        third = cluster.submit("-N1", comment, script="srun --auto-resume=1 sleep 600")
        fleet.until(lambda: len(fleet.incidents) > 1)

        assert [one.job for one in fleet.incidents] == [f"job/{job}", f"job/{third}"]
