"""Decisions about jobs: when an attempt is stopped, for which cause, and whether one follows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from holdfast.decisions.crash_loop import app_backoff
from holdfast.decisions.faults import node_faults, silent_at
from holdfast.decisions.job_failures import (
    application,
    dated,
    explained,
    hardware,
    hardware_failure,
    left_service,
)
from holdfast.decisions.loss_faults import loss_stop
from holdfast.decisions.node_exchange import exchange
from holdfast.decisions.placement import place, room, usable
from holdfast.decisions.policy import JobPolicy, RemediationPolicy
from holdfast.decisions.rank_failures import after_stop, application_failure, watched_until
from holdfast.decisions.root_cause import futile_restart
from holdfast.kit.backoff import Backoff
from holdfast.kit.units import counted, format_duration
from holdfast.model.actions import (
    ConfirmStart,
    Finish,
    JobAction,
    KillAttempt,
    Relaunch,
    Retry,
    StartAttempt,
    StopAttempt,
    Wait,
)
from holdfast.model.job_views import JobView, RankView
from holdfast.model.jobs import Ending, Failure, FailureKind, JobPhase, Placing
from holdfast.model.names import Reason
from holdfast.model.nodes import NodeView, Phase

KILL_BACKOFF: Final = Backoff(first=timedelta(seconds=1), longest=timedelta(minutes=1))
"""Delays before SIGKILL is repeated: a process may have been forked in between. They grow, as on a
node that hangs nothing ends before the node is repaired."""

_REPORT_POLL: Final = timedelta(seconds=1)
"""Time between two checks for reports: a heartbeat alone triggers no round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePolicy:
    """Policies for decisions about jobs."""

    job: JobPolicy
    nodes: RemediationPolicy


def decide_job(
    job: JobView, nodes: Mapping[str, NodeView], policy: ResumePolicy, now: datetime
) -> JobAction | Wait:
    """Return the action for one job now. ``nodes`` holds the whole cluster by name."""
    if job.ending is not None and not job.record.phase.is_final:
        return _ended(job, job.ending)
    match job.record.phase:
        case JobPhase.WAITING:
            return _decide_waiting(job, nodes, policy, now)
        case JobPhase.STARTING | JobPhase.RUNNING:
            return _decide_running(job, nodes, policy, now)
        case JobPhase.STOPPING:
            return _decide_stopping(job, nodes, policy, now)
        case _:
            return Wait(until=None)


def _ended(job: JobView, ending: Ending) -> Finish:
    """Return the end that the platform reports.

    A job that has failed while it was being stopped for a failure gets that failure: a controller
    that made the platform end the job may have died before recording it.
    """
    is_stopped = job.record.phase is JobPhase.STOPPING and ending.outcome is JobPhase.FAILED
    failure = job.record.failure if is_stopped else None
    return replace(_finish(job, ending.outcome, ending.reason), failure=failure)


def _decide_waiting(
    job: JobView, nodes: Mapping[str, NodeView], policy: ResumePolicy, now: datetime
) -> JobAction | Wait:
    if job.cancel_requested:
        return _finish(job, JobPhase.CANCELLED, "cancelled by request")
    start_after = job.record.start_after
    if start_after is not None and now < start_after:
        pause = format_duration(start_after - job.record.phase_since)
        why = f"backing off for {pause} after repeated failures of the application"
        return Wait(until=start_after, why=why)
    if job.spec.placing is Placing.SCHEDULER:
        return _await_capacity(job, nodes, policy, now)
    candidates = usable(nodes.values(), job.spec.name, policy.nodes, now)
    placement = place(job, {node.name: node for node in candidates})
    if placement is not None:
        return StartAttempt(job=job.spec.name, placement=placement)
    needed = f"{counted(job.spec.nodes, 'node')} {'is' if job.spec.nodes == 1 else 'are'} needed"
    shortage = f"{needed}, {len(candidates)} of {len(nodes)} are available"
    deadline = _wait_deadline(job, policy)
    if now < deadline:
        return Wait(until=deadline, why=f"waiting for nodes: {shortage}")
    waited = format_duration(policy.job.wait_for_nodes)
    return _finish(job, JobPhase.FAILED, f"no healthy nodes within {waited}: {shortage}")


def _wait_deadline(job: JobView, policy: ResumePolicy) -> datetime:
    since = job.record.phase_since
    return max(since, job.record.start_after or since) + policy.job.wait_for_nodes


def _await_capacity(
    job: JobView, nodes: Mapping[str, NodeView], policy: ResumePolicy, now: datetime
) -> JobAction | Wait:
    """Return the start of an attempt, unless a running repair is about to free the missing room.

    If none does, or it takes too long, the ranks wait at the scheduler: only then does an
    autoscaler add nodes.
    """
    if job.ranks or not job.is_stop_seen:
        return Wait(until=None, why="ranks of the previous attempt have not terminated")
    needed = job.spec.nodes
    at_hand, in_the_end = room(job, nodes, policy.nodes, now)
    deadline = _wait_deadline(job, policy)
    if at_hand >= needed or in_the_end < needed or now >= deadline:
        return StartAttempt(job=job.spec.name, placement=())
    shortage = f"capacity for {at_hand} of {needed} ranks until nodes are back in service"
    return Wait(until=deadline, why=f"waiting for nodes: {shortage}")


def _decide_running(
    job: JobView, nodes: Mapping[str, NodeView], policy: ResumePolicy, now: datetime
) -> JobAction | Wait:
    is_launched = len(job.ranks) == job.spec.nodes
    is_scheduled = job.spec.placing is Placing.SCHEDULER
    if is_launched and all(rank.exit_code == 0 for rank in job.ranks):
        return _finish(job, JobPhase.SUCCEEDED, "all ranks exited with code 0")
    if job.cancel_requested:
        return StopAttempt(job=job.spec.name, failure=None)
    failure = hardware_failure(job, nodes, policy.nodes, now)
    if failure is None:
        own = application_failure(job, policy.job, now)
        failure = None if own is None else explained(own, job, nodes, policy.nodes, now)
    watched = watched_until(job, policy.job, now)
    if watched is not None and failure is not None and failure.kind is FailureKind.APPLICATION:
        return Wait(until=watched)
    if failure is None and not is_launched and not is_scheduled:
        failure = _launch_failure(job, nodes, policy, now)
    if failure is not None:
        failure = dated(failure, job)
        found = exchange(job, failure, nodes, policy.nodes, now, is_exhausted(job, failure))
        return found or StopAttempt(job=job.spec.name, failure=failure)
    if job.record.phase is JobPhase.STARTING and job.leaving:
        return _await_leaving(job, policy.job, now)
    if job.record.phase is JobPhase.STARTING and not is_scheduled:
        return Relaunch(job=job.spec.name)
    if job.record.phase is JobPhase.STARTING and is_launched:
        return ConfirmStart(job=job.spec.name)
    deadlines = [silent_at(nodes[name], policy.nodes) for name in job.record.placement]
    if not is_launched and not is_scheduled:
        deadlines.append(job.record.phase_since + policy.job.launch_timeout)
    return Wait(until=min((at for at in deadlines if at is not None), default=None))


def _await_leaving(job: JobView, policy: JobPolicy, now: datetime) -> KillAttempt | Wait:
    """Return how the ranks on exchanged nodes end, before others replace them."""
    deadline = job.record.phase_since + _kill_pause(job, policy)
    nodes = tuple(dict.fromkeys(rank.node for rank in job.leaving))
    if now >= deadline:
        return KillAttempt(job=job.spec.name, nodes=nodes)
    return Wait(until=deadline, why=_unterminated(job.leaving) if job.record.kills else "")


def _launch_failure(
    job: JobView, nodes: Mapping[str, NodeView], policy: ResumePolicy, now: datetime
) -> Failure | None:
    """Return why ranks that are not launched yet cannot be launched any more; None if they can."""
    launched = {rank.node for rank in job.ranks}
    for name in job.record.placement:
        node = nodes[name]
        if name in launched:
            continue
        if node.record.phase is not Phase.SCHEDULABLE:
            return left_service(node, job, now)
        for fault in node_faults(node, policy.nodes, now):
            return hardware(job, now, fault.reason, name, fault.message)
    if now < job.record.phase_since + policy.job.launch_timeout:
        return None
    waited = format_duration(policy.job.launch_timeout)
    ran = f"{len(job.ranks)} of {job.spec.nodes} ranks were launched within {waited}"
    return application(job, now, Reason.LAUNCH_FAILED, "", ran)


def _decide_stopping(
    job: JobView, nodes: Mapping[str, NodeView], policy: ResumePolicy, now: datetime
) -> JobAction | Wait:
    record = job.record
    alive = [rank for rank in (*job.ranks, *job.leaving) if rank.exit_code is None]
    if alive or not job.is_stop_seen:
        deadline = record.phase_since + _kill_pause(job, policy.job)
        if now >= deadline:
            return KillAttempt(job=job.spec.name)
        why = _unterminated(alive) if record.kills else ""
        return Wait(until=deadline, why=why)
    if record.failure is None:
        return _finish(job, JobPhase.CANCELLED, "cancelled by request")
    settled = record.failure.at + policy.job.settle
    if now < settled:
        return Wait(until=settled)
    verdict = _verdict(job, nodes, policy, now)
    if verdict.kind is FailureKind.APPLICATION:
        missing = _missing_reports(job, nodes, record.failure.at)
        deadline = record.failure.at + policy.job.report_timeout
        if missing and now < deadline:
            why = f"waiting for reports of {', '.join(missing)}, which may explain the failure"
            return Wait(until=min(deadline, now + _REPORT_POLL), why=why)
    return _after_failure(job, verdict, policy, now)


def _missing_reports(job: JobView, nodes: Mapping[str, NodeView], end: datetime) -> list[str]:
    """Return the nodes of an attempt whose agents have not reported since its end."""
    return [
        name
        for name in dict.fromkeys(job.record.placement)
        if (node := nodes.get(name)) is not None
        and node.reported_at is not None
        and node.reported_at <= end
    ]


def _kill_pause(job: JobView, policy: JobPolicy) -> timedelta:
    """Return the time from the stop, or from the last SIGKILL, to the next SIGKILL."""
    if any(rank.is_fenced for rank in job.ranks):
        return KILL_BACKOFF.delay(min(job.record.kills, 1))
    return KILL_BACKOFF.delay(job.record.kills) if job.record.kills else stop_grace(job, policy)


def stop_grace(job: JobView, policy: JobPolicy) -> timedelta:
    """Return the time between SIGTERM and the first SIGKILL of a job that is being stopped."""
    spec, failure = job.spec, job.record.failure
    if failure is None or failure.kind is not FailureKind.HARDWARE:
        return spec.grace
    own = policy.fault_grace if spec.fault_grace is None else spec.fault_grace
    return min(spec.grace, own)


def _unterminated(alive: Sequence[RankView]) -> str:
    if not alive:
        return "all ranks have ended, but the platform has not confirmed that the job is stopped"
    nodes = ", ".join(dict.fromkeys(rank.node for rank in alive))
    return f"ranks on {nodes} did not terminate after SIGKILL; check that these nodes respond"


def _verdict(
    job: JobView, nodes: Mapping[str, NodeView], policy: ResumePolicy, now: datetime
) -> Failure:
    """Return the cause of the stop, including evidence that arrived after it."""
    first = job.record.failure
    assert first is not None  # noqa: S101 - the caller has handled a stop without failure
    return explained(after_stop(first, job), job, nodes, policy.nodes, now)


def _after_failure(
    job: JobView, failure: Failure, policy: ResumePolicy, now: datetime
) -> Retry | Finish:
    if job.cancel_requested:
        return _finish(job, JobPhase.CANCELLED, "cancelled by request")
    why = (
        loss_stop(failure, job.record.attempts, job.record.placement)
        or is_exhausted(job, failure)
        or futile_restart(job, failure, policy.job)
    )
    if why:
        return _fail(job, failure, why)
    if failure.kind is not FailureKind.APPLICATION:
        return Retry(job=job.spec.name, failure=failure, start_after=None)
    pause = app_backoff(job.record, failure, policy.job)
    return Retry(job=job.spec.name, failure=failure, start_after=now + pause if pause else None)


def is_exhausted(job: JobView, failure: Failure) -> str:
    """Return why a job gets no further attempt after a failure; empty if it gets one."""
    spec, record = job.spec, job.record
    stuck = failures_at_step(job, failure)
    if _needs_progress(job, failure) and stuck >= spec.same_step_limit:
        return f"no progress: {stuck} failures in a row at step {failure.step}"
    if failure.kind is FailureKind.HARDWARE and record.hardware_retries >= spec.max_retries:
        return _spent(spec.max_retries, "hardware")
    if failure.kind is FailureKind.APPLICATION and record.app_retries >= spec.max_app_retries:
        return _spent(spec.max_app_retries, "application")
    used = record.hardware_retries + record.app_retries
    limit = None if failure.kind is FailureKind.REQUESTED else spec.max_all_retries
    return _spent(limit, "hardware and application") if limit is not None and used >= limit else ""


def _spent(allowed: int, kind: str) -> str:
    if not allowed:
        return f"no {kind} retries allowed"
    return f"{kind} retries exhausted ({allowed} of {allowed})"


def failures_at_step(job: JobView, failure: Failure) -> int:
    """Return the number of consecutive failures without progress, this one included.

    Progress is a step beyond that of every earlier failure. Unless the job's settings differ, only
    failures of the application count: a node may well fail twice between two checkpoints, and has a
    retry limit of its own. A failure that reports no step is no evidence about progress.
    """
    record = job.record
    if failure.step is None:
        return record.same_step_failures
    has_progressed = record.best_step is None or failure.step > record.best_step
    before = 0 if has_progressed else record.same_step_failures
    return before + _needs_progress(job, failure)


def _needs_progress(job: JobView, failure: Failure) -> bool:
    """Return whether a failure without progress counts as one."""
    if failure.kind is FailureKind.REQUESTED:
        return False
    return failure.kind is FailureKind.APPLICATION or job.spec.needs_progress


def _finish(job: JobView, outcome: JobPhase, reason: str) -> Finish:
    return Finish(job=job.spec.name, outcome=outcome, reason=reason)


def _fail(job: JobView, failure: Failure, why: str) -> Finish:
    where = f" on {failure.node}" if failure.node else ""
    reason = f"{why}; last failure: {failure.reason}{where}: {failure.evidence}"
    return Finish(job=job.spec.name, outcome=JobPhase.FAILED, reason=reason, failure=failure)
