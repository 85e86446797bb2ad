"""Stops, holds and releases jobs, one Slurm command at a time."""

import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

from holdfast.adapters.slurm.commands.comment import Key, changed, restart_reason
from holdfast.adapters.slurm.commands.job_text import COMPLETING, NOT_LAUNCHED, WAITING, BatchJob
from holdfast.adapters.slurm.commands.jobs import JobCommands
from holdfast.adapters.slurm.jobs.views import HOLD, PREFIX, Case
from holdfast.adapters.slurm.nodes.reservations import Reservations
from holdfast.engine.repeats import RepeatLimiter
from holdfast.model.errors import BackendError
from holdfast.model.events import CallFailed
from holdfast.model.jobs import FailureKind, JobPhase
from holdfast.ports.clock import Clock
from holdfast.ports.events import EventSink

SOON: Final = "starttime=now+2"
"""Start time of a job that is released. With an earlier one, slurmd takes its credential for that
of the previous run: "Job credential revoked", and the job is lost."""

_AGAIN_S: Final = 5.0
"""Minimum seconds between two requests for a change that slurmctld may have lost in a crash, or
refused."""


class JobHolds:
    """Stops, holds and releases jobs.

    Every call is idempotent, and may follow a process that was killed halfway through the same
    call.
    """

    def __init__(
        self, slurm: JobCommands, reservations: Reservations, clock: Clock, events: EventSink
    ) -> None:
        self._slurm = slurm
        self._reservations = reservations
        self._clock = clock
        self._repeats = RepeatLimiter(events)
        self._done_at: dict[str, float] = {}

    def stop(self, case: Case) -> None:
        """Reserve the good nodes of a job, requeue it, and hold it."""
        job = case.job
        if job.has_nodes and job.restarts <= case.run.restarts:
            self._reserve(case)
            self._slurm.stop_job(job.id)
        if not job.is_over:
            self._delay(case)

    def keep(self, case: Case) -> None:
        """Hold a job that Holdfast has stopped, even if slurmctld has lost the hold."""
        job = case.job
        if job.is_over and case.run.record.phase is JobPhase.WAITING:
            if self.is_due(f"requeueing {PREFIX}{job.id}"):
                self._slurm.revive_job(job.id)
                self._delay(case)
        elif job.state in WAITING or (job.state == COMPLETING and job.restarts > case.run.restarts):
            self._delay(case)
            # While a job is completing, Slurm reports ever fewer nodes as those that it requests.
            if job.state in WAITING and self.is_due(
                f"renewing the nodes reserved for {PREFIX}{job.id}"
            ):
                self._reserve(case)
        elif job.has_nodes and self.is_due(f"stopping {PREFIX}{job.id}"):
            self.stop(case)

    def let_start(self, case: Case) -> None:
        """Let a job start in two seconds, on the nodes that are reserved for it."""
        job = case.job
        failure = case.run.record.failure
        has_fault = failure is not None and failure.kind is FailureKind.HARDWARE
        is_parked = job.why == NOT_LAUNCHED or (has_fault and job.is_held_after_failure)
        if job.state not in WAITING or (_is_eligible(job, self._clock.now()) and not is_parked):
            return
        if is_parked:
            self._slurm.release_job(job.id)
        name = self._reserve(case)
        changes = [f"reservationname={name}"] if name else []
        if failure is not None:
            why = restart_reason(job.restarts, failure.reason, failure.node)
            text = changed(job.comment, {Key.RESTART_REASON: why, Key.REQUEUE_REQUEST: None})
            changes.append(f"comment={text}")
        self._slurm.update_job(job.id, SOON, *changes)

    def attempt(self, what: str, act: Callable[[], object]) -> None:
        """Call ``act``; a failure is reported and retried later."""
        if f"!{what}" in self._done_at and not self.is_due(f"!{what}"):
            return
        try:
            act()
        except BackendError as error:
            self._done_at[f"!{what}"] = time.monotonic()
            self._repeats.emit(CallFailed(what=what, error=str(error)), self._clock.now())

    def is_due(self, what: str) -> bool:
        """Whether an action is due again; if so, records it as done now."""
        now = time.monotonic()
        self._done_at = {one: at for one, at in self._done_at.items() if at > now - _AGAIN_S}
        return now == self._done_at.setdefault(what, now)

    def _delay(self, case: Case) -> None:
        job = case.job
        if job.eligible_at is not None and job.eligible_at > self._clock.now() + HOLD / 2:
            return
        changes = [f"starttime=now+{HOLD.total_seconds():.0f}"]
        if case.request.requeue is not None:
            changes.append(f"comment={changed(job.comment, {Key.REQUEUE_REQUEST: None})}")
        self._slurm.update_job(job.id, *changes)

    def _reserve(self, case: Case) -> str:
        """Reserve nodes for a job before others take them; return the reservation's name."""
        try:
            return self._reservations.make(case.job, case.names)
        except BackendError as error:
            what = f"reserving nodes for {PREFIX}{case.job.id}"
            self._repeats.emit(CallFailed(what=what, error=str(error)), self._clock.now())
            return ""


def _is_eligible(job: BatchJob, now: datetime) -> bool:
    """Whether Slurm may start a job, now or within moments."""
    return job.eligible_at is None or job.eligible_at <= now + HOLD / 100
