"""Builders of views and records for tests, which set only the relevant values."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from holdfast.model.health import Fault, Remedy, Severity, Urgency
from holdfast.model.job_views import JobView, RankView
from holdfast.model.jobs import JobPhase, JobRecord, JobSpec
from holdfast.model.names import Condition, Reason
from holdfast.model.nodes import (
    Breaker,
    ClusterView,
    NodeRecord,
    NodeView,
    PastFault,
    Phase,
    Remediation,
)
from holdfast.model.requests import Request, Verb

NOW: Final = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
"""Current time of all tests that do not set another."""

LONG_AGO: Final = NOW - timedelta(days=30)

WITH_REMEDIATION: Final = (Phase.QUARANTINED, Phase.DRAINING, Phase.REBOOTING, Phase.REPLACING)


def a_fault(remedy: Remedy = Remedy.REBOOT, **changes: Any) -> Fault:
    """Return a fault that needs ``remedy``, reported a second ago."""
    is_reboot = remedy is Remedy.REBOOT
    values: dict[str, Any] = {
        "family": "xid",
        "condition": Condition.NVIDIA_REBOOT if is_reboot else Condition.NVIDIA_TERMINATE,
        "reason": Reason.XID_REBOOT if is_reboot else Reason.XID_REPLACE,
        "severity": Severity.FATAL,
        "message": f"evidence for {remedy}",
        "since": NOW - timedelta(seconds=1),
    }
    return Fault(remedy=remedy, **{**values, **changes})


def a_remediation(remedy: Remedy = Remedy.REBOOT, **changes: Any) -> Remediation:
    """Return a remediation of the fault ``a_fault(remedy)``."""
    fault = a_fault(remedy)
    values: dict[str, Any] = {
        "incident_id": "incident-1",
        "opened_at": NOW - timedelta(minutes=1),
        "condition": fault.condition,
        "reason": fault.reason,
        "urgency": Urgency.IMMEDIATE,
    }
    return Remediation(remedy=remedy, **{**values, **changes})


def a_past_fault(remedy: Remedy = Remedy.REBOOT, *, ago: timedelta, **changes: Any) -> PastFault:
    """Return a remediation that was opened and closed so long ago."""
    values: dict[str, Any] = {
        "opened_at": NOW - ago,
        "closed_at": NOW - ago,
        "reason": Reason.XID_REBOOT,
    }
    return PastFault(remedy=remedy, **{**values, **changes})


def a_record(phase: Phase = Phase.SCHEDULABLE, **changes: Any) -> NodeRecord:
    """Return a record in ``phase`` since a minute ago, with a remediation if the phase has one."""
    values: dict[str, Any] = {"phase_since": NOW - timedelta(minutes=1)}
    if phase in WITH_REMEDIATION:
        values["remediation"] = a_remediation(
            Remedy.REPLACE if phase is Phase.REPLACING else Remedy.REBOOT,
            ordered_at=NOW if phase in (Phase.REBOOTING, Phase.REPLACING) else None,
            machine="i-1#boot-1" if phase in (Phase.REBOOTING, Phase.REPLACING) else "",
        )
    return NodeRecord(phase=phase, **{**values, **changes})


def a_node(
    phase: Phase = Phase.SCHEDULABLE, *, record: Mapping[str, Any] | None = None, **changes: Any
) -> NodeView:
    """Return a node with a heartbeat a second ago; ``record`` holds changes of its record."""
    values: dict[str, Any] = {
        "name": "node-1",
        "provider_id": "i-1",
        "boot_id": "boot-1",
        "heartbeat_at": NOW - timedelta(seconds=1),
        "record": a_record(phase, **(record or {})),
    }
    return NodeView(**{**values, **changes})


def healthy_nodes(count: int, *, first: int = 1) -> tuple[NodeView, ...]:
    """Return nodes ``node-1``, ``node-2`` and so on, on machines ``i-1``, ``i-2`` and so on."""
    return tuple(
        a_node(name=f"node-{number}", provider_id=f"i-{number}")
        for number in range(first, first + count)
    )


def a_cluster(
    *nodes: NodeView, breaker: Breaker | None = None, offenders: Iterable[str] = ()
) -> ClusterView:
    """Return a cluster of these nodes; nodes that share a machine, except the first, get others."""
    return ClusterView(
        nodes=on_own_machines(nodes), breaker=breaker or Breaker(), offenders=frozenset(offenders)
    )


def on_own_machines(nodes: Iterable[NodeView]) -> tuple[NodeView, ...]:
    """Return the nodes, each with a machine of its own."""
    taken: set[str] = set()
    found = []
    for node in nodes:
        own = f"i-{node.name}" if node.provider_id in taken else node.provider_id
        taken.add(own)
        found.append(as_machine(node, own) if own != node.provider_id else node)
    return tuple(found)


def as_machine(node: NodeView, provider_id: str) -> NodeView:
    """Return the node on another machine, also in its record."""
    record = node.record
    if record.remediation is not None:
        machine = record.remediation.machine.replace(node.provider_id, provider_id)
        record = replace(record, remediation=replace(record.remediation, machine=machine))
    return replace(node, provider_id=provider_id, record=record)


def a_request(verb: Verb, **changes: Any) -> Request:
    """Return a request made a second ago."""
    values: dict[str, Any] = {
        "id": "request-1",
        "requested_at": NOW - timedelta(seconds=1),
        "requested_by": "somebody",
    }
    return Request(verb=verb, **{**values, **changes})


def a_job(
    phase: JobPhase = JobPhase.RUNNING,
    *,
    nodes: int = 2,
    spec: Mapping[str, Any] | None = None,
    record: Mapping[str, Any] | None = None,
    **changes: Any,
) -> JobView:
    """Return a job on ``node-1``, ``node-2`` and so on, in ``phase`` since a minute ago.

    ``spec`` and ``record`` hold changes of these. Its ranks run in the phases that have ranks.
    """
    placement = tuple(f"node-{number}" for number in range(1, nodes + 1))
    is_waiting = phase is JobPhase.WAITING
    stored: dict[str, Any] = {
        "phase": phase,
        "phase_since": NOW - timedelta(minutes=1),
        "attempt": 0 if is_waiting else 1,
        "placement": () if is_waiting else placement,
        "started_at": None if is_waiting else NOW - timedelta(minutes=1),
    }
    has_ranks = phase in (JobPhase.RUNNING, JobPhase.STOPPING)
    values: dict[str, Any] = {
        "spec": JobSpec(**{"name": "job-1", "nodes": nodes, **(spec or {})}),
        "record": JobRecord(**{**stored, **(record or {})}),
        "ranks": tuple(
            RankView(rank=rank, node=name) for rank, name in enumerate(placement) if has_ranks
        ),
    }
    return JobView(**{**values, **changes})


def by_name(*nodes: NodeView) -> dict[str, NodeView]:
    """Return nodes by name, as the job decisions take them."""
    return {node.name: node for node in nodes}
