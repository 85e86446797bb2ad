"""Slurm commands on a job that its owner may run, without any privilege."""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from holdfast.adapters.slurm.commands.comment import Key, changed, parse, requeue_request
from holdfast.adapters.slurm.commands.comment_reports import (
    ReportedHang,
    ReportedProgress,
    ReportedStraggler,
    loss_fault,
    progress,
    straggler,
    suspected_hang,
)
from holdfast.adapters.slurm.commands.hostlist import expand
from holdfast.adapters.slurm.commands.job_text import BatchJob, jobs_format, parse_batch_jobs
from holdfast.adapters.slurm.commands.jobs import JobCommands
from holdfast.kit.commands import run
from holdfast.model.errors import BackendError
from holdfast.model.jobs import LossFault

_STEP: Final = re.compile(
    r"StepId=(?P<id>\S+).*? NodeList=(?P<nodes>\S+)"
    r".*?(?: SrunHost:Pid=(?P<host>[^\s:]*):(?P<pid>\d+)|$)"
)
_IS_OVER: Final = ("already completing or completed", "Invalid job id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of a job that was launched with srun."""

    id: str
    """ID for ``scancel``: ``7.0``, or ``7+1.0`` in a heterogeneous job."""

    nodes: tuple[str, ...]
    host: str
    pid: int
    """Process ID of its srun on ``host``."""

    @property
    def number(self) -> str:
        """Number of the step in the job."""
        return self.id.rpartition(".")[2]


def parse_steps(text: str) -> list[Step]:
    """Return the steps that ``scontrol -o show step JOB`` printed, without batch and extern.

    Raises:
        ValueError: the output is not as expected.

    """
    steps = []
    for line in text.splitlines():
        if not line:
            continue
        found = _STEP.match(line)
        if found is None:
            raise ValueError(f"unexpected output of scontrol: {line[:100]!r}")
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
    """Slurm commands on one job; methods raise ``BackendError`` if slurmctld does not answer."""

    def __init__(self, job: str, timeout: timedelta) -> None:
        """Use the cluster that the environment names.

        Args:
            job: number of the job, as in ``SLURM_JOB_ID``.
            timeout: time limit of one command.

        """
        super().__init__(None, timeout)
        self._environment.pop("SLURM_TIME_FORMAT", None)  # times are compared by their text
        self.job = job
        """Number of the job."""

        self._id = job
        """ID for ``scontrol``. A job with the number of an array is one task of it here."""

    def read(self) -> BatchJob:
        """Return the current state of the job."""
        mark = f"={secrets.token_hex(16)}"
        text = self._call("squeue", "-h", "-t", "all", "-j", self.job, "-O", jobs_format(mark))
        try:
            found = parse_batch_jobs(text, mark)
        except ValueError as error:
            raise BackendError(f"job {self.job} cannot be read: {error}") from error
        own = next((job for job in found.values() if job.number == self.job), None)
        if own is None:
            raise BackendError(f"job {self.job} not found in Slurm")
        self._id = own.id
        return own

    def set_auto_resume(self, value: str) -> BatchJob:
        """Set auto-resume in its Comment to ``1`` or ``0``. Returns the job as it was read."""
        job = self.read()
        if parse(job.comment).auto_resume is not (value == "1"):
            self._comment(job, {Key.AUTO_RESUME: value})
        return job

    def steps(self) -> list[Step]:
        """Return the steps that have not ended."""
        argv = ("scontrol", "-o", "show", "step", self._id)
        done = run(argv, timeout=self._timeout, environment=self._environment)
        if done.status and done.errors.strip():
            raise BackendError(f"{' '.join(argv)}: {' '.join(done.errors.split())}")
        try:
            return [] if done.status else parse_steps(done.output)  # fails if there is no step
        except ValueError as error:
            raise BackendError(f"the steps of job {self.job} cannot be read: {error}") from error

    def cancel_step(self, step: str) -> None:
        """Cancel a step; no effect on one that has ended."""
        self._try(("scancel", step), _IS_OVER)

    def request_requeue(self, restarts: int, since: datetime) -> None:
        """Request a requeue from the controller, unless it is requested already.

        Args:
            restarts: number of requeues when the current run began.
            since: when its step ended.

        """
        job = self.read()
        if not parse(job.comment).requests_requeue(restarts):
            self._comment(job, {Key.REQUEUE_REQUEST: requeue_request(restarts, since)})

    def report_loss(self, attempt: int, fault: LossFault) -> None:
        """Report a fault of the loss of an attempt to the controller."""
        self._comment(self.read(), {Key.LOSS_FAULT: loss_fault(attempt, fault)})

    def report_hang(self, hang: ReportedHang | None) -> None:
        """Report a step that seems to hang to the controller; None if it continues."""
        value = None if hang is None else suspected_hang(hang)
        self._comment(self.read(), {Key.SUSPECTED_HANG: value})

    def report_progress(self, reported: ReportedProgress) -> None:
        """Report the last step and the step rate to people."""
        self._comment(self.read(), {Key.PROGRESS: progress(reported)})

    def report_straggler(self, reported: ReportedStraggler | None) -> None:
        """Report the node of a straggler to the controller; None if no rank is slow any more."""
        value = None if reported is None else straggler(reported)
        self._comment(self.read(), {Key.STRAGGLER: value})

    def _comment(self, job: BatchJob, changes: Mapping[Key, str | None]) -> None:
        self.update_job(job.id, f"comment={changed(job.comment, changes)}")
