"""What the owner of a job may ask of Slurm, and have done to the job, without any privilege."""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from holdfast.adapters.slurm.commands.hostlist import expand
from holdfast.adapters.slurm.commands.jobs import JobCommands
from holdfast.adapters.slurm.jobs.comment import Key, ask_for, changed, parse
from holdfast.adapters.slurm.jobs.text import BatchJob, jobs_format, parse_batch_jobs
from holdfast.kit.commands import run
from holdfast.model.errors import BackendError

_STEP: Final = re.compile(
    r"StepId=(?P<id>\S+).*? NodeList=(?P<nodes>\S+)"
    r".*?(?: SrunHost:Pid=(?P<host>[^\s:]*):(?P<pid>\d+)|$)"
)
_IS_OVER: Final = ("already completing or completed", "Invalid job id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of a job that srun launched."""

    id: str
    """As ``scancel`` takes it: ``7.0``, or ``7+1.0`` in a heterogeneous job."""

    nodes: tuple[str, ...]
    host: str
    pid: int
    """Of its srun, on that host."""

    @property
    def number(self) -> str:
        """Its number in the job."""
        return self.id.rpartition(".")[2]


def parse_steps(text: str) -> list[Step]:
    """The steps in the answer of ``scontrol -o show step JOB``; not its script, nor its daemon.

    Raises:
        ValueError: it is no such answer.

    """
    steps = []
    for line in text.splitlines():
        if not line:
            continue
        found = _STEP.match(line)
        if found is None:
            raise ValueError(f"scontrol said {line[:100]!r}")
        if found["id"].rpartition(".")[2].isdecimal():
            step = Step(
                id=found["id"],
                nodes=expand("" if found["nodes"] == "(null)" else found["nodes"]),
                host=found["host"] or "",
                pid=int(found["pid"] or 0),
            )
            steps.append(step)
    return steps


class OwnJob(JobCommands):
    """One job. Every method raises ``BackendError`` if slurmctld cannot be asked."""

    def __init__(self, job: str, timeout: timedelta) -> None:
        """Use the cluster of the surroundings.

        Args:
            job: its number, as in ``SLURM_JOB_ID``.
            timeout: of one command.

        """
        super().__init__(None, timeout)
        self._environment.pop("SLURM_TIME_FORMAT", None)  # times are compared by their text
        self._job = job
        self._id = job
        """As ``scontrol`` takes it. What has the number of an array is one task of it for us."""

    def read(self) -> BatchJob:
        """The job as it is now."""
        mark = f"={secrets.token_hex(16)}"
        text = self._call("squeue", "-h", "-t", "all", "-j", self._job, "-O", jobs_format(mark))
        try:
            found = parse_batch_jobs(text, mark)
        except ValueError as error:
            raise BackendError(f"job {self._job} cannot be read: {error}") from error
        own = next((job for job in found.values() if job.number == self._job), None)
        if own is None:
            raise BackendError(f"Slurm does not know job {self._job}")
        self._id = own.id
        return own

    def set_wish(self, wish: str) -> BatchJob:
        """Let its comment say whether it is to be resumed, ``1`` or ``0``. Returns the job."""
        job = self.read()
        if parse(job.comment).auto_resume is not (wish == "1"):
            self._comment(job, {Key.AUTO_RESUME: wish})
        return job

    def steps(self) -> list[Step]:
        """Its steps that have not ended."""
        argv = ("scontrol", "-o", "show", "step", self._id)
        done = run(argv, timeout=self._timeout, environment=self._environment)
        if done.status and done.errors.strip():
            raise BackendError(f"{' '.join(argv)}: {' '.join(done.errors.split())}")
        try:
            return [] if done.status else parse_steps(done.output)  # it fails if there is none
        except ValueError as error:
            raise BackendError(f"the steps of job {self._job} cannot be read: {error}") from error

    def cancel_step(self, step: str) -> None:
        """End a step; one that has ended stays as it is."""
        self._try(("scancel", step), _IS_OVER)

    def ask_requeue(self, restarts: int, since: datetime) -> None:
        """Request a requeue from the controller, unless that is done.

        Args:
            restarts: the count of requeues with which the present run began.
            since: when its step ended.

        """
        job = self.read()
        if not parse(job.comment).asks_requeue(restarts):
            self._comment(job, {Key.ASK: ask_for(restarts, since)})

    def _comment(self, job: BatchJob, changes: Mapping[Key, str | None]) -> None:
        self.update_job(job.id, f"comment={changed(job.comment, changes)}")
