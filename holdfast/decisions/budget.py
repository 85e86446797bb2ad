"""How many nodes may be away from their jobs at once, and which go first."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from holdfast.decisions.lifecycle import is_out_of_service
from holdfast.decisions.policy import RemediationPolicy
from holdfast.model.actions import Deferred, Drain, NodeAction, StartCheck
from holdfast.model.health import Urgency
from holdfast.model.nodes import NodeView, Phase


def within_limits(
    actions: Sequence[NodeAction],
    drains: list[tuple[NodeView, Drain]],
    members: Sequence[NodeView],
    size: int,
    policy: RemediationPolicy,
) -> tuple[list[NodeAction], list[Deferred]]:
    """What may be done now, by node, and what has to wait.

    Args:
        actions: what needs no room in the budget for repairs.
        drains: what does, with its node.
        members: the nodes of the cluster; healthy ones may be missing.
        size: the number of all nodes.
        policy: sets the limits.

    """
    allowed, refused = _within_budget(drains, members, policy.max_unavailable.of(size))
    taken, unchecked = _within_check_limit(
        (*actions, *allowed), members, policy.max_checking.of(size)
    )
    return taken, [*refused, *unchecked]


def _within_budget(
    drains: list[tuple[NodeView, Drain]], members: Sequence[NodeView], allowed: int
) -> tuple[list[Drain], list[Deferred]]:
    """The drains that may begin while at most ``allowed`` nodes are out of service."""
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
    """The actions that may be taken while at most ``allowed`` nodes are under a check."""
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


def _most_urgent_first(item: tuple[NodeView, Drain]) -> tuple[bool, datetime, str]:
    node = item[0]
    remediation = node.record.remediation
    is_deferred = remediation is not None and remediation.urgency is Urgency.DEFERRED
    return (is_deferred, node.record.phase_since, node.name)
