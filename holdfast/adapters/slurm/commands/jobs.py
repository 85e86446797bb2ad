"""Slurm commands for jobs and reservations."""

import re
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
"""A job may continue after the end of a FLEX reservation, and may use nodes outside of it. OVERLAP
takes nodes of the spare pool without releasing them in between."""

_WORK_DIR: Final = re.compile(r" WorkDir=(.{1,4096}?)(?= \w+=|$)", re.MULTILINE)
_NUMBERED: Final = re.compile(r"\[\d{1,9}\]$")

_HARMLESS: Final = (
    "Job is pending execution",
    "already completing or completed",
    "Requested operation is presently disabled",
    "Invalid job id",
    "Job/step already completing or completed",
)
_NOT_FOUND: Final = ("Reservation specification not found", "Invalid reservation", "not found")


class JobCommands(Slurm):
    """Commands on one cluster; methods raise ``BackendError`` if slurmctld does not respond."""

    def batch_jobs(self) -> dict[str, BatchJob]:
        """Return all jobs that slurmctld still knows, including ended ones, by ID."""
        mark = f"={secrets.token_hex(16)}"
        text = self._call("squeue", "-h", "-t", "all", "-O", jobs_format(mark))
        try:
            return parse_batch_jobs(text, mark)
        except ValueError as error:
            raise BackendError(f"the jobs cannot be read: {error}") from error

    def reservations(self) -> dict[str, Reservation]:
        """Return all reservations, by name."""
        text = self._call("scontrol", "-o", "show", "reservation")
        try:
            return parse_reservations(text)
        except ValueError as error:
            raise BackendError(f"the reservations cannot be read: {error}") from error

    def partition_nodes(self, partition: str) -> frozenset[str]:
        """Return the nodes of a partition."""
        text = self._call("sinfo", "-h", "-N", "-p", partition, "-o", "%N")
        return frozenset(name for line in text.split() for name in expand(line))

    def step_nodes(self) -> frozenset[tuple[str, str]]:
        """Return the pairs of job and node on which the job runs a step."""
        lines = self._call("squeue", "-h", "-s", "-o", "%i|%N").splitlines()
        pairs = (line.strip().partition("|") for line in lines if ".extern|" not in line)
        return frozenset(
            (step.partition(".")[0].partition("+")[0], node)
            for step, _, nodes in pairs
            for node in expand(nodes)
        )

    def settings(self) -> dict[str, str]:
        """Return the cluster's configuration, as slurmctld has it.

        Slurm 26.05 prints each script of a setting on a line, such as ``Prolog[0]``; they are
        joined with commas.
        """
        found: dict[str, str] = {}
        for line in self._call("scontrol", "show", "config").splitlines():
            name, _, value = line.partition("=")
            key = _NUMBERED.sub("", name.strip())
            found[key] = f"{found[key]},{value.strip()}" if key in found else value.strip()
        return found

    def script(self, job: str) -> str:
        """Return the batch script of a job; empty if Slurm no longer has it."""
        try:
            return self._call("scontrol", "write", "batch_script", job, "-")
        except BackendError:
            return ""

    def work_dir(self, job: str) -> str:
        """Return the working directory of a job.

        Raises:
            BackendError: Slurm no longer has the job.

        """
        found = _WORK_DIR.search(self._call("scontrol", "-o", "show", "job", job))
        if found is None:
            raise BackendError(f"job {job}: scontrol prints no WorkDir")
        return found[1]

    def stop_job(self, job: str) -> None:
        """Requeue a running job; no effect on one that has ended."""
        self._try(("scontrol", "requeue", "Incomplete", job), _HARMLESS)

    def revive_job(self, job: str) -> None:
        """Requeue a job that has failed."""
        self._call("scontrol", "requeue", job)

    def cancel_job(self, job: str) -> None:
        """Cancel a job; no effect on one that has ended."""
        self._try(("scancel", job), _HARMLESS)

    def notify_job(self, number: str, text: str) -> None:
        """Write a line into the output of a running job; no effect on one that does not run.

        Args:
            number: ``BatchJob.number``; for an array task, its ID would reach another task.
            text: the line.

        """
        self._try(("scontrol", "notify", number, f"holdfast: {text}"), _HARMLESS)

    def release_job(self, job: str) -> None:
        """Release a job that Slurm has held."""
        self._call("scontrol", "release", job)

    def update_job(self, job: str, *changes: str) -> None:
        """Change a job; each change is a ``key=value`` argument of ``scontrol``."""
        self._call("scontrol", "update", f"jobid={job}", *changes)

    def reserve(self, name: str, nodes: Iterable[str], user: str, duration: timedelta) -> None:
        """Reserve nodes for a user's jobs that name the reservation; running jobs keep running."""
        minutes = max(1, round(duration.total_seconds() / 60))
        self._call(
            "scontrol", "create", "reservation", f"reservationname={name}",
            f"nodes={joined(nodes)}", f"users={user}", "starttime=now", f"duration={minutes}",
            f"flags={_FLAGS}",
        )  # fmt: skip

    def keep_spares(self, name: str, partition: str, count: int) -> None:
        """Reserve idle nodes of a partition from all jobs; Slurm replaces those that go DOWN."""
        self._call(
            "scontrol", "create", "reservation", f"reservationname={name}",
            f"partitionname={partition}", f"nodecnt={count}", "users=root", "starttime=now",
            "duration=UNLIMITED", "flags=REPLACE_DOWN",
        )  # fmt: skip

    def update_reservation(self, name: str, *changes: str) -> None:
        """Change a reservation."""
        self._call("scontrol", "update", f"reservationname={name}", *changes)

    def end_reservation(self, name: str) -> None:
        """Delete a reservation; no error if there is none."""
        self._try(("scontrol", "delete", f"reservationname={name}"), _NOT_FOUND)

    def clear_node(self, node: str) -> None:
        """Make Slurm forget the ending jobs of a node that has rebooted, or is off.

        A node that somebody else has closed stays closed, for that reason: DOWN keeps DRAIN and
        FAIL, but no state is set without a reason. If the reason is a request, such as
        ``Action:Replace``, the controller carries it out next.
        """
        facts = self.nodes(node)[node]
        if facts.keeps_reason:
            self.down_node(node, facts.reason.text)
        else:
            self.down_node(node, "holdfast: its jobs have ended")
            self.open_node(node)
