"""Circuit breaker: pauses all repairs when many faults more likely come from a wrong detector."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from holdfast.decisions.faults import node_faults
from holdfast.decisions.policy import RemediationPolicy
from holdfast.model.actions import CloseBreaker, TripBreaker
from holdfast.model.names import Condition
from holdfast.model.nodes import ClusterView, NodeView, Phase

_NO_FAULTS: Final = frozenset((Condition.REQUESTED, Condition.AGENT_SILENT))
"""Conditions without evidence about the machine. A DaemonSet that fails silences every agent at
once; repairs of nodes with real faults continue meanwhile."""


def trip(
    cluster: ClusterView, suspects: Iterable[NodeView], policy: RemediationPolicy, now: datetime
) -> TripBreaker | None:
    """Return the action that opens the breaker if too many nodes turned faulty at once, else None.

    Args:
        cluster: the whole cluster, for its size and the state of the breaker.
        suspects: nodes that may be faulty; all others are known to be healthy.
        policy: share, window and minimum number of nodes that open the breaker.
        now: current time.

    """
    if cluster.breaker.tripped_at is not None:
        return None
    since = now - policy.breaker_window
    if cluster.breaker.reset_at is not None:
        since = max(since, cluster.breaker.reset_at)
    names = tuple(
        sorted(node.name for node in suspects if _turned_faulty(node, policy, since, now))
    )
    share = 100 * len(names) / len(cluster.nodes) if names else 0
    if len(names) < policy.breaker_min_nodes or share <= policy.breaker_share:
        return None
    minutes = policy.breaker_window.total_seconds() / 60
    return TripBreaker(
        reason=f"{len(names)} of {len(cluster.nodes)} nodes turned faulty in {minutes:g} minutes",
        nodes=names,
    )


def close(
    cluster: ClusterView, policy: RemediationPolicy, now: datetime
) -> tuple[CloseBreaker | None, datetime | None]:
    """Return the action that closes the breaker, if it is due, and the time of the next evaluation.

    All nodes must be schedulable, report heartbeats and have no fault for ``breaker_close_after``.
    A fault that takes a node out of service restarts that period when the node is schedulable
    again.
    """
    tripped_at = cluster.breaker.tripped_at
    if tripped_at is None or not policy.breaker_close_after or not cluster.nodes:
        return None, None
    if cluster.unreadable or not all(_is_healthy(one, policy, now) for one in cluster.nodes):
        return None, None
    healthy_since = max(one.record.phase_since for one in cluster.nodes)
    due_at = max(tripped_at, healthy_since) + policy.breaker_close_after
    if now < due_at:
        return None, due_at
    minutes = policy.breaker_close_after / timedelta(minutes=1)
    reason = f"all {len(cluster.nodes)} nodes were healthy for {minutes:g} minutes"
    return CloseBreaker(tripped_at=tripped_at, reason=reason), None


def _is_healthy(node: NodeView, policy: RemediationPolicy, now: datetime) -> bool:
    is_in_service = node.record.phase is Phase.SCHEDULABLE and node.heartbeat_at is not None
    return is_in_service and not node_faults(node, policy, now)


def _turned_faulty(
    node: NodeView, policy: RemediationPolicy, since: datetime, now: datetime
) -> bool:
    remediation = node.record.remediation
    is_faulty = remediation is not None and remediation.condition not in _NO_FAULTS
    if remediation is not None and is_faulty and remediation.opened_at > since:
        return True
    if any(past.opened_at > since for past in node.record.history):
        return True
    return any(
        fault.since > since and fault.condition not in _NO_FAULTS
        for fault in node_faults(node, policy, now)
    )
