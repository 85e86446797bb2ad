"""The step of a supervised job as Slurm reports it: its nodes, their faults, and why it ended."""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

from holdfast.adapters.slurm.commands.comment import CommentRequest, parse
from holdfast.adapters.slurm.commands.job_text import BatchJob
from holdfast.adapters.slurm.jobs.attempts import restarts_in
from holdfast.adapters.slurm.jobs.own_job import OwnJob, Step
from holdfast.adapters.slurm.jobs.resizing import Resizing
from holdfast.adapters.slurm.jobs.step_faults import (
    faults_after_end,
    faults_while_running,
    is_unreachable,
    is_usable,
)
from holdfast.decisions.step_restart import EndedStep, RestartDecision, RestartMode
from holdfast.model.errors import BackendError
from holdfast.model.jobs import CHECKPOINTS_VARIABLE, JobSpec

_SETTLED: Final = timedelta(seconds=10)
"""Time for slurmctld to notice the slurmd of a node that is back; a person may resume a node before
that."""

_DEFAULTS: Final = JobSpec(name="", nodes=1)
MAX_RETRIES: Final = _DEFAULTS.max_retries
"""Restarts of a job without ``max-retry`` in its Comment."""


class StepMonitor:
    """Monitors a job, its step and their nodes; methods raise ``BackendError`` as ``OwnJob``.

    Args:
        slurm: the job.
        environment: of the step.
        is_bound: whether the step can run on its own nodes only.
        max_retries: restarts of the job if its Comment has no ``max-retry``.
        timeout: of one Slurm command.

    """

    def __init__(
        self,
        slurm: OwnJob,
        environment: Mapping[str, str],
        *,
        is_bound: bool,
        max_retries: int,
        timeout: timedelta,
    ) -> None:
        self.job: BatchJob | None = None
        """The job as it was last read; None before the first read."""

        self.step: Step | None = None
        """The step; None until Slurm lists it."""

        self.faults: Mapping[str, str] = {}
        """Faults of its nodes since the step began, by node."""

        self.restarts = restarts_in(environment)
        self._slurm, self._timeout = slurm, timeout
        self._environment, self._is_bound = environment, is_bound
        self._default_retries = max_retries
        self._before: dict[str, str] = {}
        self._returned: frozenset[str] = frozenset()
        self._launched_at = 0.0
        self._cannot_exchange = ""

    @property
    def request(self) -> CommentRequest:
        """Parsed Comment of the job."""
        return CommentRequest() if self.job is None else parse(self.job.comment)

    @property
    def max_retries(self) -> int:
        """Number of restarts that the job may have."""
        requested = self.request.max_retry
        return self._default_retries if requested is None else requested

    @property
    def checkpoints(self) -> Path | None:
        """Directory of the job's checkpoints; None if neither Comment nor environment names one."""
        folder = self.request.checkpoint or self._environment.get(CHECKPOINTS_VARIABLE, "")
        return Path(folder) if folder else None

    def start_launch(self, *nodes: str) -> None:
        """Read the job and its nodes before a launch on ``nodes``; a failure is retried later."""
        self.job, self._before = None, {}
        self._returned, self._launched_at = frozenset(self.faults) & {*nodes}, time.monotonic()
        with suppress(BackendError):
            self._read_start()

    def finish_launch(self) -> None:
        """Forget the step of the attempt before, and its faults."""
        self.step, self.faults, self._cannot_exchange = None, {}, ""

    def _read_start(self) -> None:
        """Set auto-resume in the Comment; record the job and its nodes as the step begins."""
        job = self._slurm.set_auto_resume("1")
        nodes = self._slurm.nodes(*job.nodes)
        self.job = job
        self._before = {
            name: one.slurmd for name, one in nodes.items() if name not in self._returned
        }

    def find_step(self, srun_pid: int) -> bool:
        """Find the step that srun has launched, if it is unknown. True when it is found."""
        if self.job is None:
            self._read_start()
        if self.step is not None:
            return False
        own = (srun_pid, _short(os.uname().nodename))
        steps = self._slurm.steps()
        self.step = next((one for one in steps if (one.pid, _short(one.host)) == own), None)
        return self.step is not None

    def find_faults(self) -> bool:
        """Check the nodes of a running step. True if a new fault is one that it cannot survive."""
        if self.step is None or self.request.mode is RestartMode.REQUEUE or self.faults:
            return False
        nodes = self._slurm.nodes(*self.step.nodes)
        if time.monotonic() > self._launched_at + _SETTLED.total_seconds():
            self._before = {name: one.slurmd for name, one in nodes.items()} | self._before
        self.faults = faults_while_running(self.step.nodes, nodes, self._before)
        return bool(self.faults)

    def read_end(self, since: timedelta, *, relaunches: int) -> EndedStep | None:
        """Return the state of a step that has ended; None if its job has ended or was requeued.

        The stalled attempts are left at 0.

        Args:
            since: time since the step ended.
            relaunches: of the step so far.

        """
        job = self._slurm.read()
        if not job.is_at_work or job.restarts != self.restarts:
            return None
        names = self.step.nodes if self.step else (self.job or job).nodes
        self.job = job
        nodes = self._slurm.nodes(*dict.fromkeys((*names, *job.nodes)))
        self.faults = {**faults_after_end(names, nodes, self._before), **self.faults}
        return EndedStep(
            mode=self.request.mode,
            step_nodes=names,
            allocation=job.nodes,
            usable={name for name, one in nodes.items() if is_usable(one)},
            unreachable={name for name, one in nodes.items() if is_unreachable(one)},
            faults=self.faults,
            since=since,
            relaunches=relaunches,
            max_retries=self.max_retries,
            stall_limit=_DEFAULTS.same_step_limit,
            batch_host=self._environment.get("SLURMD_NODENAME", ""),
            is_bound=self._is_bound,
            cannot_exchange=self._cannot_exchange,
        )

    def exchange(self, decision: RestartDecision) -> str:
        """Exchange the faulty nodes of the job. Returns why that failed; empty if it succeeded.

        A second exchange for the same end of the step is refused by ``decide_restart``.
        """
        slurm = Resizing(self._timeout)
        try:
            job = self._slurm.read()
            why = slurm.refusal(job)
            if not why:
                slurm.exchange(job, decision.nodes, decision.missing, self.faults)
        except BackendError as error:
            why = str(error)
        self._cannot_exchange = why or "the nodes from the exchange are not usable"
        return why


def _short(host: str) -> str:
    return host.partition(".")[0]
