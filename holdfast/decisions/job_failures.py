"""Cause of the failure of an attempt: a node, the application, or a person's request."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from holdfast.decisions.faults import app_restart_since, node_faults
from holdfast.decisions.policy import RemediationPolicy
from holdfast.model.health import Urgency
from holdfast.model.job_views import JobView
from holdfast.model.jobs import Failure, FailureKind, Placing
from holdfast.model.names import Condition, Reason
from holdfast.model.nodes import NodeView, Phase


def hardware_failure(
    job: JobView, nodes: Mapping[str, NodeView], policy: RemediationPolicy, now: datetime
) -> Failure | None:
    """Return why the present attempt cannot continue on its nodes; None if it can.

    The reason is that of the first node in rank order that is gone, leaving, has an immediate fault
    or needs a restart of its application.
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
    if node is None:
        return hardware(job, now, Reason.NODE_LOST, name, f"{name} has left the cluster")
    if node.leaving:
        where = name if node.leaving_reason is Reason.NODE_REMOVED else ""
        removed = hardware(job, now, node.leaving_reason, where, node.leaving)
        return replace(removed, kind=FailureKind.REQUESTED)
    for fault in node_faults(node, policy, now):
        if fault.urgency is Urgency.IMMEDIATE:
            return hardware(job, now, fault.reason, name, fault.message)
    if _has_left_service(node, job):
        return left_service(node, job, now)
    started = job.record.started_at
    restart = app_restart_since(node, started) if started is not None else None
    if restart is None:
        return None
    return hardware(job, now, restart.reason, name, restart.message)


def _has_left_service(node: NodeView, job: JobView) -> bool:
    """Return whether a node is withdrawn from jobs.

    A node that was never released to jobs may still have a rank if a scheduler chose it: Holdfast
    manages such a node only since the rank runs.
    """
    phase = node.record.phase
    is_new = phase in (Phase.JOINING, Phase.CHECKING) and node.record.remediation is None
    if is_new and job.spec.placing is Placing.SCHEDULER:
        return False
    return phase not in (Phase.SCHEDULABLE, Phase.QUARANTINED)


def left_service(node: NodeView, job: JobView, now: datetime) -> Failure:
    """Return the failure of an attempt whose node is not schedulable."""
    return replace(withdrawn(node, now), step=job.step)


def withdrawn(node: NodeView, now: datetime) -> Failure:
    """Return the same failure for an attempt of which nothing else is known."""
    remediation = node.record.remediation
    reason = remediation.reason if remediation is not None else Reason.NODE_LOST
    is_requested = remediation is not None and remediation.condition == Condition.REQUESTED
    return Failure(
        kind=FailureKind.REQUESTED if is_requested else FailureKind.HARDWARE,
        reason=reason,
        at=now,
        node=node.name,
        evidence=f"{node.name} is {node.record.phase}",
    )


def lost_with(node: str, now: datetime) -> Failure:
    """Return the failure of an attempt of which only the loss of a node is known."""
    return Failure(
        kind=FailureKind.HARDWARE,
        reason=Reason.NODE_LOST,
        at=now,
        node=node,
        evidence=f"the job was requeued when {node} was lost",
    )


def explained(
    failure: Failure,
    job: JobView,
    nodes: Mapping[str, NodeView],
    policy: RemediationPolicy,
    now: datetime,
) -> Failure:
    """Return the cause of a failure of ranks: a fault of one of their nodes, else the failure.

    An attempt continues while a fault is deferred, such as one of GPU memory that no rank has
    touched yet. A rank that fails before the repair has most likely hit that fault.
    """
    cause = hardware_failure(job, nodes, policy, now) or _deferred(job, nodes, policy, now)
    if cause is None or not _is_open(failure, cause):
        return failure
    return replace(
        failure,
        kind=cause.kind,
        reason=cause.reason,
        node=cause.node,
        evidence=f"{cause.evidence} ({failure.evidence})",
    )


def _is_open(failure: Failure, cause: Failure) -> bool:
    """Return whether a failure may have a cause other than the known one."""
    if failure.kind is FailureKind.APPLICATION or failure.reason == Reason.RANK_EVICTED:
        return True
    return failure.reason == Reason.NODE_LOST and failure.node == cause.node


def _deferred(
    job: JobView, nodes: Mapping[str, NodeView], policy: RemediationPolicy, now: datetime
) -> Failure | None:
    """Return the first fault, in rank order, of a node whose repair waits for its jobs."""
    for name in job.record.placement:
        node = nodes.get(name)
        for fault in () if node is None else node_faults(node, policy, now):
            return hardware(job, now, fault.reason, name, fault.message)
    return None


def dated(failure: Failure, job: JobView) -> Failure:
    """Return a failure with the time at which the first rank ended, if that is known."""
    ends = (rank.ended_at for rank in job.ranks if rank.exit_code not in (None, 0))
    since = min((at for at in ends if at is not None), default=failure.at)
    if since >= failure.at:
        return failure
    return replace(failure, since=max(since, job.record.started_at or since))


def hardware(job: JobView, now: datetime, reason: str, node: str, evidence: str) -> Failure:
    """Return a failure now that counts as a hardware retry."""
    return Failure(
        kind=FailureKind.HARDWARE,
        reason=reason,
        at=now,
        node=node,
        evidence=evidence,
        step=job.step,
    )


def application(job: JobView, now: datetime, reason: str, node: str, evidence: str) -> Failure:
    """Return a failure now that counts as an application retry."""
    failure = hardware(job, now, reason, node, evidence)
    return replace(failure, kind=FailureKind.APPLICATION)
