"""Nodes that a round has to evaluate, and nodes that are not members of the cluster yet."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from holdfast.decisions.policy import RemediationPolicy
from holdfast.model.nodes import NodeView, Phase


def unsettled_nodes(
    nodes: Iterable[NodeView], policy: RemediationPolicy, now: datetime
) -> tuple[list[NodeView], datetime | None]:
    """Return the nodes to evaluate, and when the first of the others becomes silent.

    Nearly all nodes of a fleet are healthy nearly always, so this loop does as little as it can.
    """
    timeout = policy.heartbeat_timeout
    alive_after = now - timeout
    oldest = None
    unsettled = []
    for node in nodes:
        heartbeat = node.heartbeat_at
        record = node.record
        if (
            record.phase is not Phase.SCHEDULABLE
            or node.faults
            or node.request is not None
            or node.powered_on is False
            or record.history
            or node.is_idle
            or record.agent_silent_since is not None
            or heartbeat is None
            or heartbeat <= alive_after
        ):
            unsettled.append(node)
        elif oldest is None or heartbeat < oldest:
            oldest = heartbeat
    return unsettled, None if oldest is None else oldest + timeout


def waiting_successors(nodes: Iterable[NodeView]) -> dict[str, str]:
    """Return the nodes that wait to take over, each with the node that it was ordered to replace.

    Until it has taken over, a successor is no member of the cluster: it neither counts for the
    budget nor has a remediation of its own. A node with another remediation took over from an
    earlier node of the same name.
    """
    leaving = {
        node.name: node.record.remediation.incident_id
        for node in nodes
        if node.record.phase is Phase.REPLACING and node.record.remediation is not None
    }
    return {
        node.name: node.replaces
        for node in nodes
        if node.record.phase is Phase.JOINING
        and node.replaces in leaving
        and (
            node.record.remediation is None
            or node.record.remediation.incident_id == leaving[node.replaces]
        )
    }


def shared_machines(
    members: Sequence[NodeView], nodes: Iterable[NodeView], *, without: Collection[str]
) -> Mapping[str, Sequence[str]]:
    """Return the nodes of each provider ID that several nodes have: one of them is wrong.

    Args:
        members: the nodes to evaluate; the result is complete for their provider IDs.
        nodes: all nodes.
        without: nodes that are no members yet, such as waiting successors.

    """
    found: defaultdict[str, list[str]] = defaultdict(list)
    provider_ids = {node.provider_id for node in members} - {""}
    for node in nodes if provider_ids else ():
        if node.provider_id in provider_ids and node.name not in without:
            found[node.provider_id].append(node.name)
    return {machine: sorted(names) for machine, names in found.items() if len(names) > 1}
