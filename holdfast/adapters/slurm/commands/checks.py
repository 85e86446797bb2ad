"""Slurm's commands for deep health checks."""

import getpass
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from holdfast.adapters.slurm.commands.execution import Slurm
from holdfast.adapters.slurm.commands.job_text import parse_time
from holdfast.model.errors import BackendError

PREFIX: Final = "holdfast-check-"
"""How the names of the jobs and reservations of checks begin."""

_JOBS_FORMAT: Final = "%i|%T|%S|%j|%r"
_RESERVATION: Final = re.compile(rf"^ReservationName=({PREFIX}\S+)", re.MULTILINE)
_PARTITIONS: Final = re.compile(r" Partitions=(\S+)")
_GRES: Final = re.compile(r" Gres=(\S+)")
_GPUS: Final = re.compile(r"(?:^|,)(gpu(?::[\w.-]+)?:\d+)")
_ENDED: Final = ("Invalid job id", "already completing or completed", "has already finished")
_NOT_FOUND: Final = ("Reservation specification not found", "Requested reservation is invalid")
_FLAGS: Final = "IGNORE_JOBS,OVERLAP"
"""Jobs that are there run on, and the node may be one of another reservation, such as spares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckJob:
    """The job of a check that has not ended."""

    id: str
    state: str
    waits_for: str
    """Why it has not begun, in Slurm's word."""

    began_at: datetime | None = None
    """When it began, or is expected to."""

    @property
    def is_waiting(self) -> bool:
        """Whether its node is not given to it yet."""
        return self.state == "PENDING"


class CheckCommands(Slurm):
    """One cluster. Every method raises ``BackendError`` if slurmctld cannot be asked."""

    def check_jobs(self) -> dict[str, CheckJob]:
        """The jobs of checks that have not ended, by their names."""
        found = {}
        for line in self._call("squeue", "-h", "--me", "-o", _JOBS_FORMAT).splitlines():
            job, _, rest = line.strip().partition("|")
            state, _, rest = rest.partition("|")
            begins, _, rest = rest.partition("|")
            name, _, why = rest.rpartition("|")
            if name.startswith(PREFIX):
                found[name] = CheckJob(id=job, state=state, waits_for=why, began_at=_time(begins))
        return found

    def check_reservations(self) -> frozenset[str]:
        """The names of the reservations of checks."""
        return frozenset(_RESERVATION.findall(self._call("scontrol", "-o", "show", "reservation")))

    def reserve_for_check(self, name: str, nodes: Sequence[str]) -> None:
        """Keep nodes for the job of a check; it lasts until it is ended."""
        self._call(
            "scontrol", "create", "reservation", f"reservationname={name}",
            f"nodes={','.join(nodes)}",
            f"users={_user()}", "starttime=now", "duration=UNLIMITED", f"flags={_FLAGS}",
        )  # fmt: skip

    def submit_check(
        self,
        name: str,
        nodes: Sequence[str],
        argv: Sequence[str],
        *,
        log: Path,
        variables: Mapping[str, str],
    ) -> None:
        """Submit the job of a check: it gets all of its nodes, but only by its reservation.

        Args:
            name: of the job and of its reservation.
            nodes: where it runs; of one kind, if there are several.
            argv: options of sbatch, the script and its arguments.
            log: file for its output.
            variables: what it has in its environment beside that of this process.

        """
        text = self._call("scontrol", "-o", "show", "node", ",".join(nodes))
        options = [
            f"--job-name={name}", f"--reservation={name}", f"--nodelist={','.join(nodes)}",
            f"--nodes={len(nodes)}", "--exclusive", "--mem=0", "--no-requeue", "--chdir=/",
            f"--output={str(log).replace('%', '%%')}", *_devices(text),
        ]  # fmt: skip
        partition = _shared_partition(text)
        if not partition:
            raise BackendError(
                f"no partition has {' and '.join(nodes)}, so no job can run the check;"
                " add them to a partition"
            )
        self._call(
            "sbatch", "--parsable", *options, f"--partition={partition}", *argv,
            variables=variables,
        )  # fmt: skip

    def end_check_job(self, job: str) -> None:
        """End the job of a check; that it has ended is no error."""
        self._try(("scancel", job), _ENDED)

    def leave_reservation(self, job: str) -> None:
        """Let a started job continue without its reservation."""
        self._try(("scontrol", "update", f"jobid={job}", "reservationname="), _ENDED)

    def end_check_reservation(self, name: str) -> None:
        """Let go of its node; that there is none is no error."""
        self._try(("scontrol", "delete", f"reservationname={name}"), _NOT_FOUND)


def _time(value: str) -> datetime | None:
    try:
        return parse_time(value)
    except ValueError as error:
        raise BackendError(f"squeue printed an {error}") from error


def _shared_partition(nodes: str) -> str:
    """The first partition that all of these nodes are in; empty if there is none."""
    each = [
        found[1].split(",") if (found := _PARTITIONS.search(line)) else []
        for line in nodes.split("\nNodeName=")  # a reason may contain ends of lines
    ]
    first = each[0] if each else []
    return next((name for name in first if all(name in one for one in each)), "")


def _devices(node: str) -> list[str]:
    """The option for all GPUs of a node: where cgroups constrain devices, a job sees no others."""
    gres = _GRES.search(node)
    found = _GPUS.findall(gres[1]) if gres is not None else []
    return [f"--gres={','.join(found)}"] if found else []


def _user() -> str:
    with suppress(KeyError, OSError):
        return getpass.getuser()
    return str(os.getuid())
