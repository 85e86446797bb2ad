"""Runs of batch jobs that did not request auto-resume when they began.

``srun --auto-resume=1`` writes into the Comment when it starts, which may be minutes after the
script did. Restarts that node faults cost the job before count all the same. Kept in memory only: a
controller that is restarted in between does not know of such runs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from holdfast.adapters.slurm.commands.job_text import BatchJob
from holdfast.adapters.slurm.jobs.views import is_lost
from holdfast.adapters.slurm.nodes.node_state import NodeState
from holdfast.decisions.job_failures import lost_with
from holdfast.decisions.job_lifecycle import displaced
from holdfast.model.jobs import Failure, JobPhase, JobRecord

NodeStateOf = Callable[[str], NodeState]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """The current or last run of a job."""

    user: str
    restarts: int
    nodes: tuple[str, ...]
    machines: Mapping[str, str]
    """``NodeFacts.slurmd`` by node, as in ``RememberedJob.machines``."""

    started_at: datetime | None
    record: JobRecord
    """The job's record if it requested auto-resume: earlier runs whose cause of end is known."""

    failure: Failure | None = None
    """Reason of the stop, if it is known before Slurm has requeued the job."""

    is_judged: bool = False
    """Whether the run has ended, and is in ``record`` if its cause is known."""


class UnmanagedRuns:
    """Tracks such runs; for one thread."""

    def __init__(self, node_state: NodeStateOf) -> None:
        self._node_state = node_state
        self._runs: dict[str, _Run] = {}

    def refresh(self, found: Mapping[str, BatchJob], now: datetime) -> None:
        """Update the runs from the current state of all jobs, by ID."""
        alive = {name: job for name, job in found.items() if job.is_batch and not job.is_over}
        self._runs = {name: run for name, run in self._runs.items() if name in alive}
        for name, job in alive.items():
            known = self._runs.get(name)
            if known is not None and (known.user != job.user or job.restarts < known.restarts):
                known = None  # another job, or slurmctld has lost its last requeue
            if known is not None and job.restarts > known.restarts:
                known = self._judged(known, now)
            if job.is_at_work and (known is None or known.restarts != job.restarts):
                self._runs[name] = self._begun(job, known, now)

    def note(self, job: str, failure: Failure) -> None:
        """Record the reason for which the run of a job is about to be stopped."""
        known = self._runs.get(job)
        if known is not None:
            self._runs[job] = replace(known, failure=failure)

    def record(self, job: BatchJob, now: datetime) -> JobRecord | None:
        """Return the first record of a job that now requests auto-resume; None if unknown."""
        known = self._runs.get(job.id)
        if known is None or known.user != job.user:
            return None
        if job.restarts > known.restarts:
            known = self._runs[job.id] = self._judged(known, now)
        return known.record if known.record.attempts else None

    def _begun(self, job: BatchJob, known: _Run | None, now: datetime) -> _Run:
        states = {name: self._node_state(name) for name in job.nodes}
        return _Run(
            user=job.user,
            restarts=job.restarts,
            nodes=tuple(name for name, one in states.items() if one.counts),
            machines={
                name: "" if one.facts is None else one.facts.slurmd for name, one in states.items()
            },
            started_at=job.started_at,
            record=JobRecord(phase=JobPhase.WAITING, phase_since=now)
            if known is None
            else known.record,
        )

    def _judged(self, known: _Run, now: datetime) -> _Run:
        """Return a run that has ended, with the loss of its node if there was one.

        Without such a loss, the cause is unknown: anybody may requeue a job.
        """
        if known.is_judged:
            return known
        nodes = ((name, self._node_state(name)) for name in known.nodes)
        lost = (name for name, state in nodes if is_lost(state, known.machines[name]))
        failure = known.failure or next((lost_with(name, now) for name in lost), None)
        if failure is None:
            return replace(known, is_judged=True)
        record = displaced(known.record, failure, known.nodes, known.started_at)
        return replace(known, record=record, is_judged=True)
