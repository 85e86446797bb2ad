"""Detects jobs whose number Slurm has given to another job. Pure."""

from datetime import timedelta
from typing import Final

from holdfast.adapters.slurm.commands.job_text import BatchJob
from holdfast.adapters.slurm.nodes.state import RememberedJob

_CLOCKS: Final = timedelta(minutes=1)
"""Maximum clock difference between the controller and slurmctld."""


def is_reused(job: BatchJob, remembered: RememberedJob) -> bool:
    """Whether Slurm has given the number of a job to another one, as after a loss of its state.

    A job that is pending again has been requeued once more than before.
    """
    if remembered.user != job.user:
        return True
    if job.submitted_at is None or job.restarts > remembered.restarts:
        return False
    return job.submitted_at > remembered.record.phase_since + _CLOCKS
