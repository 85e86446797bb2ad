"""Jobs: when an attempt is stopped, whose fault it was, and whether there is another."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from holdfast.decisions.faults import app_restart_since, node_faults, silent_at
from holdfast.decisions.placement import place, usable
from holdfast.decisions.policy import JobPolicy, RemediationPolicy
from holdfast.kit.units import format_duration
from holdfast.model.actions import (
    Finish,
    JobAction,
    KillAttempt,
    Relaunch,
    Retry,
    StartAttempt,
    StopAttempt,
    Wait,
)
from holdfast.model.health import Urgency
from holdfast.model.jobs import Failure, FailureKind, JobPhase, JobView, RankView
from holdfast.model.names import Condition, Reason
from holdfast.model.nodes import NodeView, Phase

KILL_AGAIN = timedelta(seconds=1)
"""A process in uninterruptible sleep survives SIGKILL for a while; the next one finds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePolicy:
    """What a decision about a job depends on beside the job and its nodes."""

    job: JobPolicy
    nodes: RemediationPolicy


def decide_job(
    job: JobView, nodes: Mapping[str, NodeView], policy: ResumePolicy, now: datetime
) -> JobAction | Wait:
    """Choose what to do with one job now. ``nodes`` holds the whole cluster by name."""
    match job.record.phase:
        case JobPhase.WAITING:
            return _decide_waiting(job, nodes, policy, now)
        case JobPhase.STARTING | JobPhase.RUNNING:
            return _decide_running(job, nodes, policy, now)
        case JobPhase.STOPPING:
            return _decide_stopping(job, nodes, policy, now)
        case _:
            return Wait(until=None)


def _decide_waiting(
    job: JobView, nodes: Mapping[str, NodeView], policy: ResumePolicy, now: datetime
) -> JobAction | Wait:
    if job.cancel_requested:
        return _finish(job, JobPhase.CANCELLED, "cancelled by request")
    start_after = job.record.start_after
    if start_after is not None and now < start_after:
        return Wait(until=start_after, why="backing off after a failure of the application")
    candidates = usable(nodes.values(), job.spec.name, policy.nodes, now)
    placement = place(job, {node.name: node for node in candidates})
    if placement is not None:
        return StartAttempt(job=job.spec.name, placement=placement)
    shortage = f"{job.spec.nodes} nodes are needed, {len(candidates)} of {len(nodes)} can take work"
    deadline = (
        max(job.record.phase_since, start_after or job.record.phase_since)
        + policy.job.wait_for_nodes
    )
    if now < deadline:
        return Wait(until=deadline, why=f"waiting for nodes: {shortage}")
    waited = format_duration(policy.job.wait_for_nodes)
    return _finish(job, JobPhase.FAILED, f"no healthy nodes within {waited}: {shortage}")


def _decide_running(
    job: JobView, nodes: Mapping[str, NodeView], policy: ResumePolicy, now: datetime
) -> JobAction | Wait:
    if job.cancel_requested:
        return StopAttempt(job=job.spec.name, failure=None)
    failure = hardware_failure(job, nodes, policy.nodes, now) or _application_failure(job, now)
    if failure is not None:
        return StopAttempt(job=job.spec.name, failure=failure)
    if job.record.phase is JobPhase.STARTING:
        return _decide_starting(job, policy, now)
    if len(job.ranks) == job.spec.nodes and all(rank.exit_code == 0 for rank in job.ranks):
        return _finish(job, JobPhase.SUCCEEDED, "all ranks ended with exit code 0")
    deadlines = [silent_at(nodes[name], policy.nodes) for name in job.record.placement]
    return Wait(until=min((at for at in deadlines if at is not None), default=None))


def _decide_starting(job: JobView, policy: ResumePolicy, now: datetime) -> JobAction:
    if now < job.record.phase_since + policy.job.launch_timeout:
        return Relaunch(job=job.spec.name)
    waited = format_duration(policy.job.launch_timeout)
    failure = _application(job, now, Reason.LAUNCH_FAILED, "", f"not launched within {waited}")
    return StopAttempt(job=job.spec.name, failure=failure)


def _decide_stopping(
    job: JobView, nodes: Mapping[str, NodeView], policy: ResumePolicy, now: datetime
) -> JobAction | Wait:
    record = job.record
    if any(rank.exit_code is None for rank in job.ranks):
        deadline = record.phase_since + (KILL_AGAIN if record.killed else job.spec.grace)
        return Wait(until=deadline) if now < deadline else KillAttempt(job=job.spec.name)
    if record.failure is None:
        return _finish(job, JobPhase.CANCELLED, "cancelled by request")
    settled = record.failure.at + policy.job.settle
    if now < settled:
        return Wait(until=settled)
    return _after_failure(job, _verdict(job, nodes, policy, now), policy, now)


def hardware_failure(
    job: JobView, nodes: Mapping[str, NodeView], policy: RemediationPolicy, now: datetime
) -> Failure | None:
    """Why the present attempt cannot go on with its nodes; None if it can.

    The first node in rank order that is gone, leaving, faulty at once or asks for a restart of
    its application gives the reason.
    """
    for name in job.record.placement:
        node = nodes.get(name)
        failure = _node_failure(name, node, job, policy, now)
        if failure is not None:
            return failure
    return None


def _node_failure(
    name: str, node: NodeView | None, job: JobView, policy: RemediationPolicy, now: datetime
) -> Failure | None:
    def failure(reason: str, evidence: str, kind: FailureKind = FailureKind.HARDWARE) -> Failure:
        return Failure(
            kind=kind, reason=reason, at=now, node=name, evidence=evidence, step=job.step
        )

    if node is None:
        return failure(Reason.NODE_LOST, f"{name} has left the cluster")
    course = node.record.course
    for fault in node_faults(node, policy, now):
        if fault.urgency is Urgency.IMMEDIATE:
            return failure(fault.reason, fault.message)
    if node.record.phase not in (Phase.SCHEDULABLE, Phase.QUARANTINED):
        is_request = course is not None and course.condition == Condition.REQUESTED
        kind = FailureKind.REQUESTED if is_request else FailureKind.HARDWARE
        reason = course.reason if course is not None else Reason.NODE_LOST
        return failure(reason, f"{name} is {node.record.phase}", kind)
    started = job.record.started_at
    restart = app_restart_since(node, started) if started is not None else None
    return failure(restart.reason, restart.message) if restart is not None else None


def _application_failure(job: JobView, now: datetime) -> Failure | None:
    failed = [rank for rank in job.ranks if rank.exit_code not in (None, 0)]
    if failed:
        first = min(failed, key=lambda rank: (rank.ended_at or now, rank.rank))
        return _application(job, now, Reason.RANK_EXITED, first.node, _exit_text(first))
    if job.hung_since is not None:
        return _application(
            job,
            now,
            Reason.JOB_HUNG,
            "",
            f"no progress since {job.hung_since.isoformat(timespec='seconds')}",
        )
    return None


def _application(job: JobView, now: datetime, reason: str, node: str, evidence: str) -> Failure:
    return Failure(
        kind=FailureKind.APPLICATION,
        reason=reason,
        at=now,
        node=node,
        evidence=evidence,
        step=job.step,
    )


def _exit_text(rank: RankView) -> str:
    code = rank.exit_code or 0
    if code < 0:
        return f"node rank {rank.rank} was ended by signal {-code}"
    return f"node rank {rank.rank} ended with exit code {code}"


def _verdict(
    job: JobView, nodes: Mapping[str, NodeView], policy: ResumePolicy, now: datetime
) -> Failure:
    """Who was to blame for the stop, now that late evidence has arrived."""
    first = job.record.failure
    assert first is not None  # noqa: S101 - the caller has handled a stop without failure
    late = hardware_failure(job, nodes, policy.nodes, now)
    if first.kind is not FailureKind.APPLICATION or late is None:
        return first
    return Failure(
        kind=late.kind,
        reason=late.reason,
        at=first.at,
        node=late.node,
        evidence=f"{late.evidence} ({first.evidence})",
        step=first.step,
    )


def _after_failure(
    job: JobView, failure: Failure, policy: ResumePolicy, now: datetime
) -> Retry | Finish:
    if job.cancel_requested:
        return _finish(job, JobPhase.CANCELLED, "cancelled by request")
    spec, record = job.spec, job.record
    stuck = failures_at_step(job, failure)
    if failure.kind is not FailureKind.REQUESTED and stuck >= spec.same_step_limit:
        return _fail(job, failure, f"no progress: {stuck} failures in a row at step {failure.step}")
    if failure.kind is FailureKind.HARDWARE and record.hardware_retries >= spec.max_retries:
        return _fail(job, failure, f"{spec.max_retries} hardware retries are spent")
    if failure.kind is not FailureKind.APPLICATION:
        return Retry(job=spec.name, failure=failure, start_after=None)
    if record.app_retries >= spec.max_app_retries:
        return _fail(job, failure, f"{spec.max_app_retries} application retries are spent")
    pause = _backoff(record.app_retries, policy.job)
    return Retry(job=spec.name, failure=failure, start_after=now + pause if pause else None)


def failures_at_step(job: JobView, failure: Failure) -> int:
    """How many failures in a row, this one included, came without progress between them.

    0 where the job reports no steps: then nothing is known about its progress.
    """
    if failure.step is None:
        return 0
    if failure.kind is FailureKind.REQUESTED:
        return job.record.same_step_failures
    best = job.record.best_step
    return job.record.same_step_failures + 1 if best is not None and failure.step <= best else 1


def _backoff(retries: int, policy: JobPolicy) -> timedelta:
    if retries == 0:
        return timedelta(0)
    doublings = min(
        retries - 1, 30
    )  # more would overflow a timedelta; the cap is reached long before
    factor: int = 2**doublings
    return min(policy.app_backoff_max, policy.app_backoff * factor)


def _finish(job: JobView, outcome: JobPhase, reason: str) -> Finish:
    return Finish(job=job.spec.name, outcome=outcome, reason=reason)


def _fail(job: JobView, failure: Failure, why: str) -> Finish:
    where = f" on {failure.node}" if failure.node else ""
    reason = f"{why}; last: {failure.reason}{where}: {failure.evidence}"
    return Finish(job=job.spec.name, outcome=JobPhase.FAILED, reason=reason, failure=failure)
