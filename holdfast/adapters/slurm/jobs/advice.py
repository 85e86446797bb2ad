"""Advice to the owner of a job about restarts. Pure."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from holdfast.adapters.slurm.commands.comment import Rejected
from holdfast.adapters.slurm.commands.job_text import BatchJob
from holdfast.decisions.job_resume import is_exhausted
from holdfast.model.job_views import JobView
from holdfast.model.jobs import Failure, FailureKind

_APPENDS: Final = re.compile(r"^#SBATCH\s.*--open-mode[=\s]+a", re.MULTILINE)


def advice(job: BatchJob, script: str, *, appends: bool) -> Iterator[Rejected]:
    """Yield what to change in a job so that nothing is lost when it is resumed.

    Args:
        job: the job.
        script: its batch script; empty if unknown.
        appends: whether the cluster lets jobs append to their output.

    """
    if job.pinned:
        yield Rejected(
            key="--nodelist",
            value=job.pinned,
            expected="no node list: the job waits for these nodes even while they are replaced",
        )
    if script and not appends and _APPENDS.search(script) is None:
        yield Rejected(
            key="--open-mode",
            value="truncate",
            expected="append, unless sbatch set it: otherwise its log is truncated when it is"
            " resumed; put #SBATCH --open-mode=append into its script",
        )


def stop_message(job: JobView, failure: Failure) -> str:
    """Return the message in the output of a job whose attempt is stopped for a failure."""
    where = f" on {failure.node}" if failure.node else ""
    text = f"attempt {job.record.attempt} stopped: {failure.reason}{where}: {failure.evidence}"
    why = is_exhausted(job, failure)
    if why:
        return f"{text}; job cancelled: {why}"
    used = job.record.hardware_retries + (failure.kind is FailureKind.HARDWARE)
    return f"{text}; job restarting: hardware retries {used} of {job.spec.max_retries}"


def advice_message(found: Sequence[Rejected]) -> str:
    """Return the message in the output of a job about the advice for it."""
    return "; ".join(f"{one.key} is {one.value!r}: expected {one.expected}" for one in found)
