"""Port of the jobs of a cluster."""

from collections.abc import Collection, Mapping
from typing import Protocol

from holdfast.model.job_views import JobView
from holdfast.model.jobs import JobRecord
from holdfast.model.set_aside import SetAside


class JobBackend(Protocol):
    """Reads jobs, launches and stops their attempts.

    Every method may raise ``BackendError``: the caller retries. None waits for what it started.
    Calling a method twice with the same arguments has the same effect as calling it once.
    """

    def jobs(self) -> tuple[JobView, ...]:
        """Return the current state of all jobs that are not final."""
        ...

    def moved_checkpoints(self) -> Mapping[str, tuple[SetAside, ...]]:
        """Return, by ``JobSpec.name``, the checkpoints that were moved out of the way of a job.

        As of the last call of ``jobs``, and as far as the platform knows; also those of jobs that
        ``jobs`` omits because another program restarts them. A move may be returned again in later
        calls, also by another process. Its content may be user-controlled.
        """
        ...

    def put(self, job: str, record: JobRecord) -> None:
        """Store the record of a job, durably."""
        ...

    def launch(self, job: str) -> None:
        """Launch all ranks of the recorded attempt that were not launched yet.

        Where a scheduler places them this lets it start; ``JobView.ranks`` has each rank once it
        runs. Called in every round until all do.

        Ranks that are left on exchanged nodes, see ``JobRecord.exchanged``, get SIGTERM, or are
        evicted. Unless a scheduler chooses the nodes, no rank is launched before they have ended.

        A command that cannot be executed is no error of this call: its rank has ended with exit
        code 126 or 127, as in a shell.
        """
        ...

    def stop(self, job: str) -> None:
        """Send SIGTERM to all processes of every remaining rank."""
        ...

    def kill(self, job: str, nodes: Collection[str] = ()) -> None:
        """Send SIGKILL to all processes of the remaining ranks on ``nodes``; on all nodes if empty.

        Where a platform stops ranks by itself, it gets the order to end its grace period, and ranks
        that it cannot end any more are removed, on nodes where nothing can run. Slurm accepts no
        such order, and kills after its ``KillWait``.
        """
        ...
