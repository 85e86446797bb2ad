"""Checkpoint directories that a Slurm user chooses stop neither the controller nor other jobs."""

import os
from pathlib import Path
from typing import Final

import pytest
from attacked_agent import NOBODY, as_nobody
from slurm.slurm_fleet_at_work import REPLACE_XID, Fleet, stays

from tests.engines.slurm_cluster import SlurmPrograms

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="an attack changes its user: run as root")

WITHOUT_OVERRIDE: Final = (
    "setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all",
)  # fmt: skip
"""Runs a program as a SlurmUser that is not root: modes of files apply to it."""


@pytest.fixture
def hostile(fleet: Fleet) -> dict[str, Path]:
    """Paths of a local user at which a search for checkpoints fails."""
    own = fleet.folder / "own"
    own.mkdir()
    os.chown(own, NOBODY, NOBODY)
    script = """cd "$1" && ln -s loop loop && mkdir -p private/below && chmod 700 private
        ln -s end link-0
        for number in $(seq 1 1500); do ln -s link-$((number - 1)) link-$number; done"""
    made = as_nobody("sh", "-ec", script, "sh", str(own))
    assert made.returncode == 0, made.stderr
    return {
        "loop": own / "loop",
        "below a loop": own / "loop/below",
        "long name": own / ("n" * 300),
        "chain of links": own / "link-1500",
        "private": own / "private/below",
        "file": fleet.slurm.conf,
    }


def test_no_checkpoint_directory_stops_the_controller_or_other_jobs(
    programs: SlurmPrograms, fleet: Fleet, hostile: dict[str, Path]
) -> None:
    fleet.slurm.conf.chmod(0o644)
    conf = f"SLURM_CONF={fleet.slurm.conf}"
    sbatch = str(programs.find("sbatch"))
    jobs = {}
    for name, path in hostile.items():
        done = as_nobody(
            "env", conf, sbatch, "--parsable", "--hold", "--chdir=/", "--output=/dev/null",
            f"--comment=auto-resume=1 checkpoint={path}", "--wrap=sleep 600",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        jobs[name] = done.stdout.strip()

    controller = fleet.control(launcher=WITHOUT_OVERRIDE)
    for job in jobs.values():
        fleet.until(lambda job=job: f"job/{job}: checkpoint rejected" in controller.log)
    checkpoints = fleet.folder / "checkpoints"
    checkpoints.mkdir()
    other = fleet.run_job(f"--comment=auto-resume=1 checkpoint={checkpoints}")
    node = fleet.slurm.run("squeue", "-h", "-j", other, "-o", "%N").strip()
    fleet.machines[node].log(REPLACE_XID)
    assert fleet.until_recovered(node).node == node
    fleet.until(lambda: restarts(fleet, other) == 1 and fleet.slurm.jobs()[other] == "RUNNING")

    stays(lambda: controller.process.poll() is None, 1)
    for job in jobs.values():
        assert controller.log.count(f"job/{job}: checkpoint rejected") == 1


def restarts(fleet: Fleet, job: str) -> int:
    shown = fleet.scontrol("show", "job", job, "-o")
    return int(shown.split("Restarts=")[1].split()[0])
