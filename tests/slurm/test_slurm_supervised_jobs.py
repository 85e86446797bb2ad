"""srun --auto-resume=1 and the controller: each does its part, and neither does the other's."""

from pathlib import Path

from slurm_fleet_at_work import REPLACE_XID, a_fleet, on_newer_version
from supervised_cluster import EXPANDS, Supervised, own_words, skip_without_compiler

from tests.engines.slurm_cluster import SlurmCluster, SlurmPrograms

TRAINS = r"""
srun {options} --auto-resume=1 sh -c '
    echo attempt ${{HOLDFAST_ATTEMPT-first}} on $SLURMD_NODENAME
    [ -n "$HOLDFAST_ATTEMPT" ] || exec sleep 600
    sleep 2
'
echo code $?
"""
GPUS = "--gres=gpu:2"
MODES = {
    "requeue": ("-N2", GPUS, ""), "step": ("-N3", GPUS, "-N2"), "swap": ("-N2", GPUS, ""),
    "resize": ("-N2", "--mincpus=2", ""),
}  # fmt: skip
IN_PLACE = ("step", "resize")


@on_newer_version
def test_of_four_jobs_each_goes_on_in_its_own_mode(programs: SlurmPrograms, tmp_path: Path) -> None:
    """A node of each has a fault. The swap's is not back in time, so that its job is requeued."""
    skip_without_compiler(programs)
    names = [f"node{number}" for number in range(1, 13)]
    settings = {
        "ReturnToService": "2", "SuspendTimeout": "1", "SchedulerParameters": EXPANDS,
    }  # fmt: skip
    with (
        SlurmCluster(programs, nodes=names, gpus=2, settings=settings) as slurm,
        a_fleet(slurm, tmp_path) as fleet,
    ):
        cluster = Supervised(slurm, programs, tmp_path)
        done = cluster.install()
        assert done.returncode == 0, done.stderr
        cluster.use_times(requeue="60s", swap="3s")
        slurm.run("scontrol", "reconfigure")
        fleet.control(provider=fleet.by_command())
        jobs = {
            mode: cluster.submit(
                nodes, what, f"--comment=mode={mode}", script=TRAINS.format(options=options)
            )
            for mode, (nodes, what, options) in MODES.items()
        }  # fmt: skip
        bad = {}
        for mode, job in jobs.items():
            cluster.until_said(job, "TaskID: 0 process_task_init")
            held = slurm.run("squeue", "-h", "-j", job, "-o", "%N").strip()
            bad[mode] = slurm.run("scontrol", "show", "hostnames", held).split()[1]
            cluster.until_said(job, f"attempt first on {bad[mode]}")

        for name in bad.values():
            fleet.machines[name].log(REPLACE_XID)

        output = {mode: cluster.ended(job) for mode, job in jobs.items()}
        for mode, text in output.items():
            assert "code 0" in text, text
            assert "no response from the controller" not in text
            assert cluster.restarts(jobs[mode]) == (mode not in IN_PLACE), text
            assert text.count("attempt first") == 2
            assert f"attempt 1 on {bad[mode]}" not in text
            assert f"attempt 1000 on {bad[mode]}" not in text
        assert output["requeue"].count("attempt 1000 on") == 2
        assert output["swap"].count("attempt 1000 on") == 2
        for mode in IN_PLACE:
            assert output[mode].count("attempt 1 on") == 2
            assert own_words(output[mode])[-2] == "Retrying step. Attempt number: 1"
        assert "Job Expansion complete" in own_words(output["resize"])
        assert "requeue-request=requeue" not in cluster.comment(jobs["requeue"])
        fleet.until(lambda: len(fleet.orders) == 2)  # its budget has room for no more
        assert {name for _, name in fleet.orders} <= set(bad.values())
