"""What laws are judged by: plain readings of a view, written apart from the decision core."""

from datetime import datetime

from holdfast.adapters.sim.world import World
from holdfast.decisions.policy import RemediationPolicy
from holdfast.model.health import Fault, Remedy, Urgency
from holdfast.model.incidents import Incident
from holdfast.model.names import Condition, Reason
from holdfast.model.nodes import ClusterView, NodeRecord, NodeView, Phase

AWAY = (Phase.REBOOTING, Phase.REPLACING)
ORDERED = (Phase.DRAINING, *AWAY)


def bad_faults(node: NodeView) -> list[Fault]:
    """What the agent reports that the node itself must be repaired for, and nobody forgave."""
    cleared = node.record.cleared_at
    return [
        fault
        for fault in node.faults
        if fault.remedy in (Remedy.RESET_GPU, Remedy.REBOOT, Remedy.REPLACE)
        and (cleared is None or (fault.seen_at or fault.since) > cleared)
    ]


def is_lost(node: NodeView, policy: RemediationPolicy, now: datetime) -> bool:
    """Whether the node is dark, or silent for too long."""
    if node.record.phase in AWAY:
        return False
    if node.powered_on is False:
        return True
    remediation = node.record.remediation
    is_marked = node.record.phase in (Phase.QUARANTINED, Phase.DRAINING)
    if is_marked and remediation is not None and remediation.condition == Condition.NODE_LOST:
        if node.heartbeat_at is None:
            return True  # and it was not heard since
        if node.answered_at is not None and node.heartbeat_at <= remediation.opened_at:
            return True  # what answers since is not the agent
    if node.record.phase is Phase.JOINING and not is_here(node):
        return now - node.record.phase_since >= policy.join_timeout
    known = [at for at in (node.heartbeat_at, node.answered_at) if at is not None]
    return now - max(known, default=node.record.phase_since) >= policy.heartbeat_timeout


def is_here(node: NodeView) -> bool:
    """Whether agent and scheduler's daemon work, as far as there are any."""
    return node.heartbeat_at is not None and node.is_ready is not False


def hides_silence(node: NodeView, policy: RemediationPolicy, now: datetime) -> bool:
    """Whether a node in service is shown as healthy though only the scheduler hears of it.

    The scheduler has to have heard of it when its agent was silent for long enough already.
    """
    if node.record.phase is not Phase.SCHEDULABLE or node.record.agent_silent_since is not None:
        return False
    if node.answered_at is None or node.heartbeat_at is None:
        return False
    silent_since = node.heartbeat_at + policy.heartbeat_timeout
    return node.answered_at >= silent_since and now < node.answered_at + policy.heartbeat_timeout


def is_bad(node: NodeView, policy: RemediationPolicy, now: datetime) -> bool:
    """Whether jobs must not be started on the node."""
    return bool(bad_faults(node)) or is_lost(node, policy, now)


def ends_jobs(node: NodeView, policy: RemediationPolicy, now: datetime) -> bool:
    """Whether an attempt on the node must be stopped at once."""
    if node.record.phase not in (Phase.SCHEDULABLE, Phase.QUARANTINED):
        return True
    at_once = [fault for fault in bad_faults(node) if fault.urgency is Urgency.IMMEDIATE]
    return bool(at_once) or is_lost(node, policy, now)


def free_nodes(world: World) -> list[str]:
    """Nodes that a scheduler could give to a rank now."""
    taken = {name for job in world.jobs.values() for name in job.places()}
    return [
        name
        for name, node in world.nodes.items()
        if node.record.phase is Phase.SCHEDULABLE and name not in taken
    ]


def waiting_successors(view: ClusterView) -> set[str]:
    """Nodes that are there to take over from one that is still there itself."""
    leaving = {node.name: node for node in view.nodes if node.record.phase is Phase.REPLACING}
    waiting = set()
    for node in view.nodes:
        old = leaving.get(node.replaces)
        if node.record.phase is Phase.JOINING and old is not None:
            own, other = node.record.remediation, old.record.remediation
            if own is None or (other is not None and own.incident_id == other.incident_id):
                waiting.add(node.name)
    return waiting


def is_out(record: NodeRecord) -> bool:
    """Whether the node is out of service because of us."""
    if record.remediation is not None and record.remediation.reason == Reason.DEEP_CHECK_PARTNER:
        return False  # it had no job, and nothing is repaired
    if record.phase in ORDERED:
        return True
    return record.remediation is not None and record.phase in (Phase.JOINING, Phase.CHECKING)


def times_of(incident: Incident) -> list[datetime]:
    """When what happened in an incident, in the order in which it should."""
    times = (
        incident.detected_at,
        incident.quarantined_at,
        incident.drained_at,
        incident.repaired_at,
        incident.checked_at,
        incident.released_at,
    )
    return [at for at in times if at is not None]
