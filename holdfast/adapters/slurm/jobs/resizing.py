"""Exchanges nodes of a running job with its owner's rights: shrink and expand.

Another allocation of the owner is merged into the job, and the bad nodes are released. The new
nodes are allocated first: if Slurm refuses any step, the job keeps the nodes that it had.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from holdfast.adapters.slurm.commands.hostlist import expand
from holdfast.adapters.slurm.commands.job_text import BatchJob
from holdfast.adapters.slurm.commands.jobs import JobCommands
from holdfast.kit.commands import run
from holdfast.model.errors import BackendError

WAITS: Final = timedelta(seconds=10)
"""How long to wait for idle nodes. Unlike a requeue, this cannot reserve nodes that become free."""

_NEEDED: Final = "permit_job_expansion"
_GRES: Final = re.compile(r" JOB_GRES=(\S+)")
_GRANTED: Final = re.compile(r"Granted job allocation (\d+)")
_AGAIN: Final = (24, 11)
"""First version seen to change a job again that it has resized without slurmdbd. 22.05 waits for a
reply of its database and refuses every later change, so that the job could not be held."""

_NO_DATABASE: Final = ("", "(null)", "accounting_storage/none")
_VERSION: Final = re.compile(r"(\d+)\.(\d+)")
_PASSED_ON: Final = ("SLURM_CONF",)


def refusal(job: BatchJob, described: str, settings: Mapping[str, str]) -> str:
    """Return why a job cannot exchange nodes; empty if it can.

    Args:
        job: the job.
        described: the output of ``scontrol -d show job``.
        settings: settings of the cluster.

    """
    gres = _GRES.search(described)
    if gres is not None and gres[1] != "(null)":
        return f"it has GRES ({gres[1]}), and Slurm cannot resize such jobs"
    if len(job.parts) > 1:
        return "it is heterogeneous, and Slurm cannot resize such jobs"
    if _NEEDED not in settings.get("SchedulerParameters", "").split(","):
        return f"SchedulerParameters in slurm.conf lacks {_NEEDED}"
    version = _VERSION.match(settings.get("SLURM_VERSION", ""))
    is_new = version is not None and (int(version[1]), int(version[2])) >= _AGAIN
    if not is_new and settings.get("AccountingStorageType", "") in _NO_DATABASE:
        return "without slurmdbd, this version of Slurm cannot update a resized job"
    return ""


class Resizing(JobCommands):
    """Exchanges nodes; every method raises ``BackendError`` if Slurm refuses or does not answer."""

    def __init__(self, timeout: timedelta) -> None:
        """Use the cluster that the environment names, without the variables of a job.

        Slurm's commands would take a job's variables for options, and scontrol would
        leave files about the job's new size where it runs.

        Args:
            timeout: time limit of one command.

        """
        super().__init__(None, timeout)
        self._environment = {
            key: value
            for key, value in self._environment.items()
            if key in _PASSED_ON or not key.startswith(("SLURM_", "SALLOC_"))
        }

    def refusal(self, job: BatchJob) -> str:
        """Return why a job cannot exchange nodes; empty if it can."""
        described = self._call("scontrol", "-o", "-d", "show", "job", job.id)
        return refusal(job, described, self.settings())

    def exchange(self, job: BatchJob, good: Sequence[str], count: int, bad: Iterable[str]) -> None:
        """Replace the nodes of a job that are not good.

        Args:
            job: the running job.
            good: nodes that it keeps, among them the node of its script.
            count: number of other nodes that it needs.
            bad: nodes that it must not get.

        """
        helper = self._allocated(job, count, {*job.nodes, *bad})
        try:
            self.update_job(helper, "NumNodes=0")
        except BackendError:
            with suppress(BackendError):  # Slurm ends the allocation by itself: nothing runs in it
                self._call("scancel", helper)
            raise
        has = expand(self._call("squeue", "-h", "-j", job.id, "-o", "%N").strip())
        remaining = [name for name in has if name in good or name not in job.nodes]
        if len(remaining) < len(has):
            self.update_job(job.id, f"NodeList={','.join(remaining)}")

    def _allocated(self, job: BatchJob, count: int, without: Iterable[str]) -> str:
        """Submit a job on other, whole nodes, so that any ranks of ``job`` fit. Returns its ID."""
        argv = [
            "salloc", "--no-shell", f"--immediate={WAITS.total_seconds():.0f}",
            f"--dependency=expand:{job.id}", f"--partition={job.partition}", f"--nodes={count}",
            "--exclusive", "--mem=0", f"--exclude={','.join(sorted(without))}",
        ]  # fmt: skip
        done = run(argv, timeout=WAITS + self._timeout, environment=self._environment)
        granted = _GRANTED.search(done.errors)
        if granted is None or done.status:
            raise BackendError(f"{' '.join(argv)}: {' '.join(done.errors.split())}")
        return granted[1]
