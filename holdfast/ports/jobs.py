"""The jobs of a cluster."""

from typing import Protocol

from holdfast.model.jobs import JobRecord, JobView


class JobBackend(Protocol):
    """Reads jobs, launches and stops their attempts.

    Every method may raise ``BackendError``: the caller comes again. None waits for what it began.
    Calling a method twice with the same arguments is the same as calling it once.
    """

    def jobs(self) -> tuple[JobView, ...]:
        """All jobs that are not final, as they are now."""
        ...

    def put(self, job: str, record: JobRecord) -> None:
        """Store the record of a job, durably."""
        ...

    def launch(self, job: str) -> None:
        """Launch all ranks of the recorded attempt that were not launched yet.

        Where a scheduler places them this lets it begin; ``JobView.ranks`` has each rank once it
        runs. Called in every round until all do.

        A command that cannot be executed is no error of this call: its rank has ended with exit
        code 126 or 127, as in a shell.
        """
        ...

    def stop(self, job: str) -> None:
        """SIGTERM to all processes of every rank that is left."""
        ...

    def kill(self, job: str) -> None:
        """SIGKILL to all processes of every rank that is left.

        Where a platform ends ranks by itself after their own grace period, only those that it
        cannot end any more are removed, on nodes where nothing can run.
        """
        ...
