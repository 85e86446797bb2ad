"""Limits on the number of nodes out of service or under check at once, and who goes first."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from holdfast.decisions.node_labels import is_out_of_service
from holdfast.decisions.policy import RemediationPolicy
from holdfast.model.actions import Deferred, Drain, NodeAction, StartCheck
from holdfast.model.health import Urgency
from holdfast.model.nodes import NodeRecord, NodeView, Phase


def within_limits(
    actions: Sequence[NodeAction],
    drains: list[tuple[NodeView, Drain]],
    members: Sequence[NodeView],
    size: int,
    policy: RemediationPolicy,
) -> tuple[list[NodeAction], list[Deferred]]:
    """Return the actions to take now, by node, and those that are deferred.

    Args:
        actions: actions that do not count against the budget for repairs.
        drains: actions that do, each with its node.
        members: nodes of the cluster; healthy ones may be missing.
        size: number of all nodes.
        policy: policy with the limits.

    """
    allowed, refused = _within_budget(drains, members, policy.max_unavailable.of(size))
    taken, unchecked = _within_check_limit(
        (*actions, *allowed), members, policy.max_checking.of(size)
    )
    return taken, [*refused, *unchecked]


def _within_budget(
    drains: list[tuple[NodeView, Drain]], members: Sequence[NodeView], allowed: int
) -> tuple[list[Drain], list[Deferred]]:
    """Return the drains that may start while at most ``allowed`` nodes are out of service."""
    out = sum(is_out_of_service(node.record) for node in members) if drains else 0
    room = max(0, allowed - out)
    drains.sort(key=_most_urgent_first)
    why = f"unavailable-node budget used ({out + min(room, len(drains))} of {allowed})"
    return (
        [drain for _, drain in drains[:room]],
        [Deferred(node=node.name, why=why) for node, _ in drains[room:]],
    )


def _within_check_limit(
    actions: Iterable[NodeAction], members: Iterable[NodeView], allowed: int
) -> tuple[list[NodeAction], list[Deferred]]:
    """Return the actions that may be taken while at most ``allowed`` nodes are under check."""
    running = sum(node.record.phase is Phase.CHECKING for node in members)
    taken: list[NodeAction] = []
    deferred = []
    for action in sorted(actions, key=lambda action: action.node):
        if isinstance(action, StartCheck) and running >= allowed:
            why = f"limit of concurrent deep health checks reached ({running} of {allowed})"
            deferred.append(Deferred(node=action.node, why=why))
        else:
            running += isinstance(action, StartCheck)
            taken.append(action)
    return taken, deferred


def _most_urgent_first(item: tuple[NodeView, Drain]) -> tuple[bool, bool, datetime, str]:
    """Return the sort key of a drain.

    Who has been drained already goes before all others: it is still out of service, so that more
    nodes than the budget allows would be, if another took its place.
    """
    node = item[0]
    remediation = node.record.remediation
    is_deferred = remediation is not None and remediation.urgency is Urgency.DEFERRED
    return (not _was_drained(node.record), is_deferred, node.record.phase_since, node.name)


def _was_drained(record: NodeRecord) -> bool:
    """Return whether a node was drained in its present remediation, for a repair or a check."""
    remediation = record.remediation
    if remediation is None:
        return False
    is_checked = any(check.ended_at >= remediation.opened_at for check in record.checks)
    return remediation.repairs > 0 or is_checked
