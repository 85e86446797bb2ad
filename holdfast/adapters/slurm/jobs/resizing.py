"""A job exchanges nodes while it runs, with its owner's rights: shrink and expand.

Another allocation of the owner is merged into the job, and the bad nodes are given back. The new
nodes are taken first: whatever is refused, the job has what it had.
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
"""For idle nodes. A requeue keeps nodes that become free, which this cannot."""

_NEEDED: Final = "permit_job_expansion"
_GRES: Final = re.compile(r" JOB_GRES=(\S+)")
_GRANTED: Final = re.compile(r"Granted job allocation (\d+)")
_AGAIN: Final = (24, 11)
"""The first version that was seen to change a job again that it has resized without slurmdbd. 22.05
waits for the word of its database, and refuses every later change: job J could not be held."""

_NO_DATABASE: Final = ("", "(null)", "accounting_storage/none")
_VERSION: Final = re.compile(r"(\d+)\.(\d+)")
_KEPT: Final = ("SLURM_CONF",)


def refusal(job: BatchJob, described: str, settings: Mapping[str, str]) -> str:
    """Why a job cannot exchange nodes; empty if it can.

    Args:
        job: which.
        described: the answer to ``scontrol -d show job``.
        settings: those of the cluster.

    """
    gres = _GRES.search(described)
    if gres is not None and gres[1] != "(null)":
        return f"it has GRES ({gres[1]}), and Slurm resizes no such job"
    if len(job.parts) > 1:
        return "it is heterogeneous, and Slurm resizes no such job"
    if _NEEDED not in settings.get("SchedulerParameters", "").split(","):
        return f"SchedulerParameters in slurm.conf lacks {_NEEDED}"
    version = _VERSION.match(settings.get("SLURM_VERSION", ""))
    is_new = version is not None and (int(version[1]), int(version[2])) >= _AGAIN
    if not is_new and settings.get("AccountingStorageType", "") in _NO_DATABASE:
        return "this version of Slurm changes a resized job no more where there is no slurmdbd"
    return ""


class Resizing(JobCommands):
    """Every method raises ``BackendError`` if Slurm refuses, or cannot be asked."""

    def __init__(self, timeout: timedelta) -> None:
        """Use the cluster of the surroundings, as if this were in no job.

        What a job has in its environment would be taken for what is asked for, and scontrol would
        leave files about the job's new size where it runs.

        Args:
            timeout: of one command.

        """
        super().__init__(None, timeout)
        self._environment = {
            key: value
            for key, value in self._environment.items()
            if key in _KEPT or not key.startswith(("SLURM_", "SALLOC_"))
        }

    def refusal(self, job: BatchJob) -> str:
        """Why a job cannot exchange nodes; empty if it can."""
        described = self._call("scontrol", "-o", "-d", "show", "job", job.id)
        return refusal(job, described, self.settings())

    def exchange(self, job: BatchJob, good: Sequence[str], count: int, bad: Iterable[str]) -> None:
        """Let a job have other nodes in place of those that are not good.

        Args:
            job: which; it runs.
            good: the nodes that it keeps, among them that of its script.
            count: how many others it needs.
            bad: nodes that it must not get.

        """
        helper = self._allocated(job, count, {*job.nodes, *bad})
        try:
            self.update_job(helper, "NumNodes=0")
        except BackendError:
            with suppress(BackendError):  # Slurm ends it by itself: nothing runs there
                self._call("scancel", helper)
            raise
        has = expand(self._call("squeue", "-h", "-j", job.id, "-o", "%N").strip())
        kept = [name for name in has if name in good or name not in job.nodes]
        if len(kept) < len(has):
            self.update_job(job.id, f"NodeList={','.join(kept)}")

    def _allocated(self, job: BatchJob, count: int, without: Iterable[str]) -> str:
        """Another job with other nodes, all of each: so its ranks fit there whatever they need."""
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
