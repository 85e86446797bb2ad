"""The fuse against a wrong detector."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from holdfast.decisions.faults import node_faults
from holdfast.decisions.policy import RemediationPolicy
from holdfast.model.actions import TripBreaker
from holdfast.model.names import Condition
from holdfast.model.nodes import ClusterView, NodeView

_NO_FAULTS: Final = frozenset((Condition.REQUESTED, Condition.AGENT_SILENT))
"""Conditions that say nothing about the machine. A DaemonSet that fails silences every agent at
once; repairs of nodes that are really faulty go on meanwhile."""


def trip(
    cluster: ClusterView, suspects: Iterable[NodeView], policy: RemediationPolicy, now: datetime
) -> TripBreaker | None:
    """Whether to stop all repairs now, because too many nodes turned faulty at once.

    Args:
        cluster: the whole cluster, for its size and for the breaker's state.
        suspects: the nodes that may be faulty; all others are known to be healthy.
        policy: the share, the window and the least number of nodes that trip it.
        now: the present time.

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


def _turned_faulty(
    node: NodeView, policy: RemediationPolicy, since: datetime, now: datetime
) -> bool:
    course = node.record.course
    is_faulty = course is not None and course.condition not in _NO_FAULTS
    if course is not None and is_faulty and course.opened_at > since:
        return True
    if any(past.opened_at > since for past in node.record.history):
        return True
    return any(
        fault.since > since and fault.condition not in _NO_FAULTS
        for fault in node_faults(node, policy, now)
    )
