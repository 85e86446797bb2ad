"""Slurm's commands for jobs and reservations."""

import secrets
from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from holdfast.adapters.slurm.commands.execution import Slurm
from holdfast.adapters.slurm.commands.hostlist import expand
from holdfast.adapters.slurm.commands.job_text import (
    BatchJob,
    Reservation,
    jobs_format,
    joined,
    parse_batch_jobs,
    parse_reservations,
)
from holdfast.model.errors import BackendError

_FLAGS: Final = "IGNORE_JOBS,FLEX,OVERLAP"
"""A job may go on after the end of a reservation that is FLEX, and may use nodes beside it. OVERLAP
takes nodes of the spare pool without letting go of them in between."""

_HARMLESS: Final = (
    "Job is pending execution",
    "already completing or completed",
    "Requested operation is presently disabled",
    "Invalid job id",
    "Job/step already completing or completed",
)
_NOT_THERE: Final = ("Reservation specification not found", "Invalid reservation", "not found")


class JobCommands(Slurm):
    """One cluster. Every method raises ``BackendError`` if slurmctld cannot be asked."""

    def batch_jobs(self) -> dict[str, BatchJob]:
        """All jobs that slurmctld still knows, those that ended among them, by id."""
        mark = f"={secrets.token_hex(16)}"
        text = self._call("squeue", "-h", "-t", "all", "-O", jobs_format(mark))
        try:
            return parse_batch_jobs(text, mark)
        except ValueError as error:
            raise BackendError(f"the jobs cannot be read: {error}") from error

    def reservations(self) -> dict[str, Reservation]:
        """All reservations, by name."""
        text = self._call("scontrol", "-o", "show", "reservation")
        try:
            return parse_reservations(text)
        except ValueError as error:
            raise BackendError(f"the reservations cannot be read: {error}") from error

    def partition_nodes(self, partition: str) -> frozenset[str]:
        """The nodes of a partition."""
        text = self._call("sinfo", "-h", "-N", "-p", partition, "-o", "%N")
        return frozenset(name for line in text.split() for name in expand(line))

    def step_nodes(self) -> frozenset[tuple[str, str]]:
        """Jobs and nodes on which they run something."""
        lines = self._call("squeue", "-h", "-s", "-o", "%i|%N").splitlines()
        pairs = (line.strip().partition("|") for line in lines if ".extern|" not in line)
        return frozenset(
            (step.partition(".")[0].partition("+")[0], node)
            for step, _, nodes in pairs
            for node in expand(nodes)
        )

    def settings(self) -> dict[str, str]:
        """The cluster's configuration, as slurmctld has it."""
        lines = self._call("scontrol", "show", "config").splitlines()
        pairs = (line.partition("=") for line in lines)
        return {key.strip(): value.strip() for key, _, value in pairs}

    def script(self, job: str) -> str:
        """The batch script of a job; empty if it cannot be had any more."""
        try:
            return self._call("scontrol", "write", "batch_script", job, "-")
        except BackendError:
            return ""

    def stop_job(self, job: str) -> None:
        """End a job that runs and let it wait again; one that has ended stays as it is."""
        self._try(("scontrol", "requeue", "Incomplete", job), _HARMLESS)

    def revive_job(self, job: str) -> None:
        """Let a job that has failed wait again."""
        self._call("scontrol", "requeue", job)

    def cancel_job(self, job: str) -> None:
        """End a job for good; one that has ended stays as it is."""
        self._try(("scancel", job), _HARMLESS)

    def notify_job(self, number: str, text: str) -> None:
        """Write a line into the output of a job that runs; one that does not run gets none.

        Args:
            number: ``BatchJob.number``; of an array's task, its id would reach another task.
            text: what to write.

        """
        self._try(("scontrol", "notify", number, f"holdfast: {text}"), _HARMLESS)

    def release_job(self, job: str) -> None:
        """Let Slurm schedule a job that it has parked."""
        self._call("scontrol", "release", job)

    def update_job(self, job: str, *changes: str) -> None:
        """Change a job; each change is ``key=value`` as ``scontrol`` takes it."""
        self._call("scontrol", "update", f"jobid={job}", *changes)

    def reserve(self, name: str, nodes: Iterable[str], user: str, duration: timedelta) -> None:
        """Keep nodes for the jobs of a user that ask for them; what runs there runs on."""
        minutes = max(1, round(duration.total_seconds() / 60))
        self._call(
            "scontrol", "create", "reservation", f"reservationname={name}",
            f"nodes={joined(nodes)}", f"users={user}", "starttime=now", f"duration={minutes}",
            f"flags={_FLAGS}",
        )  # fmt: skip

    def keep_spares(self, name: str, partition: str, count: int) -> None:
        """Keep idle nodes of a partition from all jobs; Slurm replaces those that go down."""
        self._call(
            "scontrol", "create", "reservation", f"reservationname={name}",
            f"partitionname={partition}", f"nodecnt={count}", "users=root", "starttime=now",
            "duration=UNLIMITED", "flags=REPLACE_DOWN",
        )  # fmt: skip

    def update_reservation(self, name: str, *changes: str) -> None:
        """Change a reservation."""
        self._call("scontrol", "update", f"reservationname={name}", *changes)

    def end_reservation(self, name: str) -> None:
        """Let go of its nodes; that there is none is no error."""
        self._try(("scontrol", "delete", f"reservationname={name}"), _NOT_THERE)

    def clear_node(self, node: str) -> None:
        """Let Slurm forget what was to end on a node that has booted anew, or is off."""
        reason = "reason=holdfast: nothing of its jobs is left"
        self._call("scontrol", "update", f"nodename={node}", "state=down", reason)
        self.open_node(node)
