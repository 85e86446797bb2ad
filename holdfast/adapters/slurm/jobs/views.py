"""Builds the core's view of a job from Slurm's state and the stored record. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from holdfast.adapters.slurm.commands.comment import CommentRequest
from holdfast.adapters.slurm.commands.job_text import (
    COMPLETING,
    FAILED,
    NODE_FAIL,
    WAITING,
    BatchJob,
)
from holdfast.adapters.slurm.nodes.boots import is_other_boot, is_other_slurmd
from holdfast.adapters.slurm.nodes.node_state import NodeState
from holdfast.adapters.slurm.nodes.state import RememberedJob
from holdfast.adapters.slurm.settings import RequeueJobs
from holdfast.decisions.job_lifecycle import begun_by_others
from holdfast.decisions.step_restart import RestartMode
from holdfast.model.job_views import JobView, RankView
from holdfast.model.jobs import Ending, JobPhase, JobRecord, JobSpec, Placing
from holdfast.model.nodes import Phase

PREFIX: Final = "job/"
"""Prefix of job names."""

PAST: Final = "@"
"""Separator between the ID of a job that Slurm has forgotten and reused, and the job's end time."""

HELD: Final = frozenset((JobPhase.STOPPING, JobPhase.WAITING))
"""Phases in which Holdfast holds a job."""

HOLD: Final = timedelta(minutes=10)
"""How long a job is held at once; renewed at half of that time. If no controller is left to release
it, Slurm starts it after that."""

TIMEOUT: Final = timedelta(seconds=30)
"""How long processes may outlive Slurm's KillWait before that is reported."""

GIVEN_UP: Final = timedelta(seconds=5)
"""The same for processes on a node that Slurm no longer waits for, as it does not respond."""

_IN_REPAIR: Final = frozenset((Phase.REBOOTING, Phase.REPLACING))
_REVIVABLE: Final = frozenset((FAILED, NODE_FAIL, "BOOT_FAIL", "REQUEUED"))
_OUTCOMES: Final = {"COMPLETED": JobPhase.SUCCEEDED, "CANCELLED": JobPhase.CANCELLED}
_BEGIN_TIME: Final = "BeginTime"
_NOT_LAUNCHED: Final = "JobLaunchFailure"
_LOST_EXIT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The run of a job that its current attempt belongs to."""

    record: JobRecord
    restarts: int
    """``BatchJob.restarts`` of that run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """State of one managed job."""

    job: BatchJob
    request: CommentRequest
    run: Run
    machines: Mapping[str, str]
    """``NodeFacts.slurmd`` by node, as in ``RememberedJob.machines``."""

    nodes: Mapping[str, NodeState]
    """State of all nodes that the job has, or had in this attempt."""

    @property
    def is_held(self) -> bool:
        """Whether Holdfast holds the job."""
        return self.run.record.phase in HELD

    @property
    def names(self) -> tuple[str, ...]:
        """Names of those nodes."""
        return tuple(dict.fromkeys((*self.machines, *self.run.record.placement, *self.job.nodes)))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDefaults:
    """Default values for all jobs of a cluster."""

    max_retries: int
    kill_wait: timedelta
    off_after: timedelta


def auto_resumes(job: BatchJob, request: CommentRequest, requeue_jobs: RequeueJobs) -> bool:
    """Whether a job is to be resumed after a fault."""
    if not job.is_batch:
        return False
    if request.auto_resume is not None:
        return request.auto_resume
    return requeue_jobs is RequeueJobs.ALL and job.can_requeue


def is_supervised(job: BatchJob, request: CommentRequest) -> bool:
    """Whether a job is left to its supervisor, as long as that requests no requeue."""
    return (
        job.has_nodes
        and request.mode is not RestartMode.REQUEUE
        and not request.requests_requeue(job.restarts)
    )


def run_of(
    job: BatchJob,
    request: CommentRequest,
    remembered: RememberedJob | None,
    now: datetime,
    unmanaged: JobRecord | None = None,
) -> Run | None:
    """Return the run of a job in its current state; None if the job is not managed.

    A job without a record, and one that others have restarted since, is in an attempt that they
    began. One with a supervisor is left to it, until the supervisor requests a requeue, or Slurm
    has ended the job. ``unmanaged`` is the record of its runs before it requested auto-resume.
    """
    if remembered is None or is_reused(job, remembered):
        return _first_run(job, request, unmanaged, now)
    before, is_anew = remembered.record, job.restarts > remembered.restarts
    if before.phase.is_final:
        fresh = JobRecord(
            phase=JobPhase.WAITING,
            phase_since=now,
            attempt=before.attempt,
            attempts=before.attempts,
        )
        return _begun_run(job, request, fresh, now) if is_anew else None
    if is_anew and _has_begun(job):
        return Run(record=_begun(before, job, now), restarts=job.restarts)
    if before.phase is JobPhase.RUNNING and is_supervised(job, request):
        return None
    return Run(record=before, restarts=remembered.restarts)


def job_view(
    case: Case,
    defaults: JobDefaults,
    capacity: Mapping[str, bool] | None,
    step: int | None,
    now: datetime,
) -> JobView:
    """Return the core's view of a job.

    Args:
        case: state of the job.
        defaults: default values for all jobs of the cluster.
        capacity: nodes that it could get, and whether Slurm places jobs there now; None unless it
            waits.
        step: see ``JobView``.
        now: the present time.

    """
    job, request, record = case.job, case.request, case.run.record
    grace = defaults.kill_wait + TIMEOUT if job.has_nodes else GIVEN_UP
    spec = JobSpec(
        name=f"{PREFIX}{job.id}",
        nodes=len(job.nodes) if job.is_at_work else job.wants,
        max_retries=defaults.max_retries if request.max_retry is None else request.max_retry,
        max_app_retries=0,  # application failures are final, as always on Slurm
        needs_progress=True,
        grace=grace,
        fault_grace=grace,  # only Slurm kills, after its KillWait
        placing=Placing.SCHEDULER,
    )
    if case.is_held:
        is_revived = record.phase is JobPhase.WAITING  # it is pending in Slurm's queue first
        return JobView(
            spec=spec,
            record=record,
            ranks=held_ranks(case, defaults, now),
            ending=_ending(job),
            capacity=None if capacity is None else dict.fromkeys(capacity, 1),
            blocked_nodes=frozenset(
                name for name, is_good in (capacity or {}).items() if not is_good
            ),
            is_stop_seen=job.state in WAITING or (job.is_over and not is_revived),
            step=step,
        )
    placement = tuple(dict.fromkeys((*record.placement, *job.nodes)))
    counted = (name for name in placement if case.nodes[name].counts)
    return JobView(
        spec=spec,
        record=replace(record, placement=tuple(counted)),
        ranks=tuple(_ranks(case)),
        ending=_ending(job),
        step=step,
    )


def deleted_view(job: str, record: JobRecord) -> JobView:
    """Return the view of a job that slurmctld no longer knows."""
    return JobView(
        spec=JobSpec(name=f"{PREFIX}{job}", nodes=1, placing=Placing.SCHEDULER),
        record=record,
        ending=Ending(outcome=JobPhase.FAILED, reason="Slurm no longer lists the job"),
    )


def held_ranks(case: Case, defaults: JobDefaults, now: datetime) -> tuple[RankView, ...]:
    """Return the ranks of the stopped attempt that still run, or may still run.

    A node that lost its network keeps running. If slurmctld has lost in a crash that the job ran,
    it kills the processes that it finds of the job, which may hit the next run as well.
    """
    job, failure = case.job, case.run.record.failure
    names = [*job.nodes] if job.has_nodes else []
    is_forgotten = job.state in WAITING and job.restarts <= case.run.restarts
    ends_at = failure.at + defaults.kill_wait + GIVEN_UP if failure is not None else now
    off = set()
    for name, machine in case.machines.items():
        node = case.nodes[name]
        if is_off(node, machine, defaults.off_after, now):
            off.add(name)
        elif name not in names and (may_run(node, machine) or (is_forgotten and now < ends_at)):
            names.append(name)
    return tuple(
        RankView(rank=rank, node=name, is_fenced=name in off) for rank, name in enumerate(names)
    )


def is_off(node: NodeState, machine: str, off_after: timedelta, now: datetime) -> bool:
    """Whether a machine was powered off, or rebooted, since an attempt ran on it.

    Args:
        node: state of the node.
        machine: ``NodeFacts.slurmd`` while the attempt ran.
        off_after: time after the provider accepted the order until a silent machine is off.
        now: the present time.

    """
    facts = node.facts
    if facts is None or "POWERED_DOWN" in facts.state:
        return True
    if is_other_boot(facts.slurmd, machine):
        return True
    record = node.record
    if (
        facts.has_heartbeat
        or record is None
        or record.phase not in _IN_REPAIR
        or record.remediation is None
    ):
        return False
    ordered_at = record.remediation.ordered_at
    return ordered_at is not None and now >= ordered_at + off_after


def may_run(node: NodeState, machine: str) -> bool:
    """Whether processes that Slurm considers ended may still run, on a machine that may be on.

    Slurm sets an unresponsive node DOWN and continues. A slurmd that responds has terminated the
    processes it was ordered to terminate; one that starts terminates the processes that it finds.
    """
    facts = node.facts
    if facts is None or facts.has_heartbeat:
        return False
    return not is_other_slurmd(facts.slurmd, machine)


def _first_run(
    job: BatchJob, request: CommentRequest, unmanaged: JobRecord | None, now: datetime
) -> Run | None:
    before = unmanaged or JobRecord(phase=JobPhase.WAITING, phase_since=now)
    if job.state in WAITING and job.restarts > 0 and job.why == _BEGIN_TIME:
        if unmanaged is not None:
            return Run(record=unmanaged, restarts=job.restarts)
        return Run(record=_begun(before, job, now), restarts=job.restarts - 1)  # Slurm requeued it
    return _begun_run(job, request, before, now)


def _begun_run(
    job: BatchJob, request: CommentRequest, before: JobRecord, now: datetime
) -> Run | None:
    if _has_begun(job) and not is_supervised(job, request):
        return Run(record=_begun(before, job, now), restarts=job.restarts)
    return None


def _has_begun(job: BatchJob) -> bool:
    return job.has_nodes and job.state != COMPLETING


def _begun(before: JobRecord, job: BatchJob, now: datetime) -> JobRecord:
    began = job.started_at if job.has_nodes and job.started_at is not None else now
    return begun_by_others(before, began)


def _ranks(case: Case) -> Iterable[RankView]:
    """Yield one rank per node of an attempt; none while the state of the job is unknown."""
    job, run = case.job, case.run
    if job.is_at_work:
        if case.request.requests_requeue(job.restarts):
            yield _lost(case, "its supervisor requests a requeue")
        else:
            yield from (RankView(rank=rank, node=name) for rank, name in enumerate(job.nodes))
    elif job.state in WAITING or job.state == COMPLETING:
        is_requeued = job.state in WAITING and run.record.phase is JobPhase.RUNNING
        if job.restarts > run.restarts or is_requeued:
            yield _lost(case, "Slurm has requeued it")
    elif job.state == FAILED and job.why != _NOT_LAUNCHED:
        where = job.nodes[0] if job.nodes else ""
        yield RankView(
            rank=0,
            node=where,
            exit_code=job.exit_code or 1,
            ended_at=job.ended_at,
            reason=job.why,
        )
    elif job.state in _REVIVABLE:
        yield _lost(case, f"Slurm reports {job.why or job.state}")


def _lost(case: Case, why: str) -> RankView:
    """Return the rank that reports the loss of its node, or the request to leave it.

    Anybody may requeue a job. Only a requeue that the supervisor requested, or that Slurm made
    itself, is the loss of a node about which nothing else is known.
    """
    names, machines = case.names, case.machines
    lost = next((name for name in names if is_lost(case.nodes[name], machines.get(name, ""))), None)
    bad = lost or next((name for name in names if case.nodes[name].is_closed), None)
    requeue = case.request.requeue if case.request.requests_requeue(case.run.restarts) else None
    is_requeued = case.job.state in (*WAITING, COMPLETING)
    is_requested = bad is not None and lost is None and case.nodes[bad].is_requested
    has_lost = not is_requested and (lost is not None or requeue is not None or not is_requeued)
    facts = case.nodes[bad].facts if is_requested and bad is not None else None
    return RankView(
        rank=0,
        node=bad or next(iter(names), ""),
        exit_code=_LOST_EXIT,
        ended_at=None if requeue is None else requeue.since,
        reason=why if facts is None else f"{why}; {facts.closed_by}",
        is_lost=has_lost,
        is_evicted=not has_lost,
    )


def is_lost(node: NodeState, machine: str) -> bool:
    """Whether a job lost a node; ``machine`` as in ``RememberedJob.machines``."""
    facts = node.facts
    if facts is None or not facts.has_heartbeat:
        return True
    if "DOWN" in facts.state and not node.is_requested:
        return True
    return is_other_boot(facts.slurmd, machine)


def _ending(job: BatchJob) -> Ending | None:
    """Return how a job ended for good; None if it has not, or if its ranks show that."""
    if not job.is_over or (job.state in _REVIVABLE and job.can_requeue):
        return None
    outcome = _OUTCOMES.get(job.state, JobPhase.FAILED)
    by = f" ({job.why})" if job.why else ""
    code = f", exit code {job.exit_code}" if job.exit_status else ""
    return Ending(outcome=outcome, reason=f"Slurm reports {job.state}{by}{code}")


_CLOCKS: Final = timedelta(minutes=1)
"""Maximum clock difference between the controller and slurmctld."""


def is_reused(job: BatchJob, remembered: RememberedJob) -> bool:
    """Whether Slurm has given the number of a job to another one, as after a loss of its state.

    A job that is pending again has been requeued once more than before.
    """
    if remembered.user != job.user:
        return True
    if job.submitted_at is None or job.restarts > remembered.restarts:
        return False
    record = remembered.record  # may be dated back, unlike the start of its attempt
    since = max(record.phase_since, record.started_at or record.phase_since)
    return job.submitted_at > since + _CLOCKS
