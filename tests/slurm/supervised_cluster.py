"""A real Slurm cluster on which the plugin was installed as an operator does it."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.engines.slurm_cluster import SlurmCluster, SlurmPrograms

HOLDFAST = [sys.executable, "-m", "holdfast"]
TIMES = "--grace=1s --fence={fence} --poll=300ms --swap-timeout={swap} --requeue-timeout={requeue}"

EXPANDS = "bf_interval=1,sched_interval=2,batch_sched_delay=0,permit_job_expansion"

_PROGRAM = """\
#!/bin/sh
exec {python} -m holdfast "$@"
"""


class Supervised:
    """The cluster and what was installed there."""

    def __init__(self, slurm: SlurmCluster, programs: SlurmPrograms, folder: Path) -> None:
        self.slurm = slurm
        self.prefix = folder / "prefix"
        self.plugstack = slurm.folder / "plugstack.conf"
        self.program = folder / "holdfast"
        self.program.write_text(_PROGRAM.format(python=sys.executable), encoding="utf-8")
        self.program.chmod(0o755)
        self._headers = headers(programs)

    def install(self, *options: str) -> "subprocess.CompletedProcess[str]":
        return self.cli(
            "slurm", "install", "--role=compute", f"--prefix={self.prefix}",
            f"--plugstack={self.plugstack}", f"--holdfast={self.program}",
            f"--headers={self._headers}", f"--report-dir={self.prefix}", *options,
        )  # fmt: skip

    def cli(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*HOLDFAST, *arguments], env=self.slurm.environment, capture_output=True, check=False,
            encoding="utf-8", timeout=60,
        )  # fmt: skip

    def use_times(self, *, requeue: str, swap: str = "30s", fence: str = "0s") -> None:
        """Let supervisors wait for less long than in earnest."""
        line = self.plugstack.read_text(encoding="utf-8").split(" --")[0].strip()
        times = TIMES.format(requeue=requeue, swap=swap, fence=fence)
        self.plugstack.write_text(f"{line} {times}\n", encoding="utf-8")

    def submit(self, *options: str, script: str) -> str:
        return self.slurm.submit("--open-mode=append", *options, script=script)

    def output(self, job: str) -> str:
        path = self.slurm.folder / f"slurm-{job}.out"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def until_said(self, job: str, text: str) -> None:
        self.slurm.until(lambda: text in self.output(job))

    def until_commented(self, job: str, text: str) -> None:
        self.slurm.until(lambda: text in self.comment(job))

    def ended(self, job: str) -> str:
        """What a job printed, when it has ended."""
        self.slurm.until(lambda: self.slurm.jobs()[job] in ("COMPLETED", "FAILED", "CANCELLED"))
        return self.output(job)

    def comment(self, job: str) -> str:
        return self.slurm.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%k").strip()

    def restarts(self, job: str) -> int:
        line = self.slurm.run("scontrol", "-o", "show", "job", job)
        return int(line.split(" Restarts=")[1].split()[0])

    def update(self, node: str, **changes: str) -> None:
        pairs = [f"{key}={value}" for key, value in changes.items()]
        self.slurm.run("scontrol", "update", f"nodename={node}", *pairs)


def headers(programs: SlurmPrograms) -> Path:
    own = programs.plugins.parent.parent / "include"
    return own if (own / "slurm").is_dir() else Path("/usr/include")


def skip_without_compiler(programs: SlurmPrograms) -> None:
    if shutil.which("gcc") is None or not (headers(programs) / "slurm/spank.h").exists():
        pytest.skip(
            "gcc or Slurm's headers are missing; on Debian: apt-get install gcc libslurm-dev"
        )


@contextmanager
def supervised_cluster(programs: SlurmPrograms, folder: Path) -> Iterator[Supervised]:
    skip_without_compiler(programs)
    settings = {"ReturnToService": "2", "SchedulerParameters": EXPANDS}
    with SlurmCluster(programs, gpus=2, settings=settings) as slurm:
        found = Supervised(slurm, programs, folder)
        done = found.install("--sagemaker-dir")
        assert done.returncode == 0, done.stderr
        found.use_times(requeue="2s")
        slurm.run("scontrol", "reconfigure")
        yield found


def own_words(output: str) -> list[str]:
    """The lines in HyperPod's form, without the part before the text."""
    return [
        line.split(" StepID: ")[1].split(" ", 1)[1]
        for line in output.splitlines()
        if line.startswith("[Auto Resume] Info: JobID: ")
    ]
