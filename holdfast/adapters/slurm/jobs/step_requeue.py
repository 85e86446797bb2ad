"""Requeues the job of a step that cannot be restarted in its allocation."""

import time
from datetime import datetime, timedelta
from typing import Final

from holdfast.adapters.slurm.jobs.own_job import OwnJob
from holdfast.adapters.slurm.jobs.step_foreground import Foreground, write_message
from holdfast.adapters.slurm.jobs.step_monitor import StepMonitor
from holdfast.model.errors import BackendError

_REQUEUED: Final = timedelta(minutes=2)
"""How long to wait for Slurm to end a job that is requeued."""

_REQUEST_AGAIN: Final = timedelta(seconds=5)
"""Interval of the checks that the request for a requeue is still in the Comment."""


class JobRequeue:
    """Has the controller requeue the job, or requeues it if the controller does not respond.

    Args:
        slurm: commands on the job.
        monitor: of the step that ended.
        foreground: the process that stands in for srun.
        timeout: for the response of the controller.

    """

    def __init__(
        self, slurm: OwnJob, monitor: StepMonitor, foreground: Foreground, timeout: timedelta
    ) -> None:
        self._slurm, self._monitor = slurm, monitor
        self._foreground, self._timeout = foreground, timeout

    def run(self, why: str, ended_at: datetime) -> None:
        """Have the job requeued whose step ended at ``ended_at``.

        Returns if that failed, or when the requeue ends this process.
        """
        job = self._monitor.job
        if job is None or not job.is_batch or not job.can_requeue:
            self._write(f"cannot be requeued: {why}; submit it with sbatch --requeue")
            return
        self._write(f"requesting a requeue: {why}")
        if self._ends_within(self._timeout, ended_at):
            return
        if job.restarts >= self._monitor.max_retries:
            self._write("not requeued: no response from the controller, retries exhausted")
            return
        self._write("no response from the controller; requeueing it directly")
        try:
            job = self._slurm.read()
            if job.is_at_work and job.restarts == self._monitor.restarts:
                self._slurm.stop_job(job.id)
        except BackendError as error:
            write_message(self._foreground, str(error))
            return
        if not self._ends_within(_REQUEUED):
            self._write("not requeued: Slurm did not end it; submit it again")

    def _ends_within(self, timeout: timedelta, ended_at: datetime | None = None) -> bool:
        """Whether Slurm or somebody ends the job, by a signal to all of it, before the timeout.

        With ``ended_at``, requests a requeue in the Comment, again if somebody overwrites it.
        """
        deadline, errors = time.monotonic() + timeout.total_seconds(), set[str]()
        while not self._foreground.is_ending and time.monotonic() < deadline:
            left = timedelta(seconds=deadline - time.monotonic())
            if ended_at is not None:
                left = min(left, _REQUEST_AGAIN)
                try:
                    self._slurm.request_requeue(self._monitor.restarts, ended_at)
                except BackendError as error:
                    if str(error) not in errors:
                        write_message(self._foreground, str(error))
                    errors.add(str(error))
            self._foreground.wait(left)
        return self._foreground.is_ending

    def _write(self, text: str) -> None:
        write_message(self._foreground, f"job {self._slurm.job}: {text}")
