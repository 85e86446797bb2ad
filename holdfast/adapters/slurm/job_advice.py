"""What may surprise the owner of a job when it is resumed: pure."""

import re
from collections.abc import Iterator
from typing import Final

from holdfast.adapters.slurm.comment import Rejected
from holdfast.adapters.slurm.job_text import BatchJob

_APPENDS: Final = re.compile(r"^#SBATCH\s.*--open-mode[=\s]+a", re.MULTILINE)


def advice(job: BatchJob, script: str, *, appends: bool) -> Iterator[Rejected]:
    """What to change in a job, so that nothing is lost when it is resumed.

    Args:
        job: the job.
        script: its batch script; empty if that is not known.
        appends: whether the cluster lets jobs append to their output.

    """
    if job.pinned:
        yield Rejected(
            key="--nodelist",
            value=job.pinned,
            expected="no nodes by name: it waits for them even when they are being replaced",
        )
    if script and not appends and _APPENDS.search(script) is None:
        yield Rejected(
            key="--open-mode",
            value="truncate",
            expected="append, unless sbatch was told so: else its log begins anew when it is"
            " resumed; put #SBATCH --open-mode=append into its script",
        )
