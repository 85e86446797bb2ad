"""Conversion of node states to the view of the decision core: pure."""

from datetime import datetime
from typing import Final, NamedTuple

from holdfast.adapters.kubernetes.checks.check_state import NO_CHECK, CheckState
from holdfast.adapters.kubernetes.nodes.encoding import ParsedAnnotations, boot_id, is_present
from holdfast.adapters.kubernetes.nodes.heartbeats import NodeLease
from holdfast.adapters.kubernetes.nodes.node import UNKNOWN, NodeState
from holdfast.decisions.silent_agents import is_known_silent
from holdfast.decisions.succession import LeavingNode
from holdfast.model.nodes import NodeRecord, NodeView, PairOutcome, Phase

_COMING: Final = frozenset((Phase.JOINING, Phase.REBOOTING))
"""Phases in which only reports of the current boot count as a heartbeat of the agent."""

_TRUE: Final = "True"
_INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"


class LastHeartbeats(NamedTuple):
    """Last heartbeats of agent and kubelet of a node; None if there was none in this boot."""

    agent_at: datetime | None
    kubelet_at: datetime | None
    observed_since: datetime | None = None
    """Since when heartbeats would have been seen, as in ``NodeView``."""


def is_managed(state: NodeState, parsed: ParsedAnnotations) -> bool:
    """Whether Holdfast manages a node: it has an agent, a record, or replaces a managed node."""
    if state.is_control_plane or parsed.is_damaged:
        return False
    return parsed.record is not None or parsed.report is not None or state.replaces is not None


def record_of(state: NodeState, parsed: ParsedAnnotations, first_seen: datetime) -> NodeRecord:
    """Return the record of a node, or that of a joining node if it has none yet.

    ``first_seen`` is when this process first read the node: its join timeout starts then.
    """
    if parsed.record is not None:
        return parsed.record
    return NodeRecord(
        phase=Phase.JOINING,
        phase_since=max(state.created_at, first_seen),
        checked_machine=_machine(state, parsed) if state.is_checked else "",
    )


def group_of(state: NodeState) -> str:
    """Return the name of a node's instance group; empty if it has none."""
    return state.group.partition("=")[2]


def instance_type_of(state: NodeState) -> str:
    """Return the instance type of a node; empty without the label."""
    return state.labels.get(_INSTANCE_TYPE, "")


def node_view(
    state: NodeState,
    parsed: ParsedAnnotations,
    record: NodeRecord,
    *,
    heartbeats: LastHeartbeats,
    jobs: tuple[str, ...] = (),
    check: CheckState = NO_CHECK,
    pair: PairOutcome | None = None,
    is_idle: bool = False,
) -> NodeView:
    """Return the view of a node for the decision core."""
    report = parsed.report if is_present(parsed.report, state) else None
    return NodeView(
        name=state.name,
        provider_id=state.provider_id,
        addresses=state.addresses,
        record=record,
        group=group_of(state),
        instance_type=instance_type_of(state),
        boot_id=boot_id(state, parsed),
        faults=() if report is None else report.faults,
        suspects=() if report is None else report.suspects,
        drill_until=None if report is None else report.drill_until,
        heartbeat_at=heartbeats.agent_at,
        answered_at=heartbeats.kubelet_at,
        is_ready=state.ready == _TRUE,
        powered_on=False if state.is_off else None,
        request=parsed.request,
        pause_reason=parsed.pause_reason,
        running_jobs=jobs,
        is_idle=is_idle,
        observed_since=heartbeats.observed_since,
        check=check.result,
        check_began_at=check.began_at,
        check_pending=check.pending,
        pair=pair,
        replaces=state.replaces or "",
    )


def leaving_view(
    name: str, leaving: LeavingNode, observed_since: datetime | None = None
) -> NodeView:
    """Return the view of a deleted node whose replacement has not arrived yet."""
    return NodeView(
        name=name,
        provider_id=leaving.provider_id,
        addresses=leaving.addresses,
        record=leaving.record,
        observed_since=observed_since,
    )


def kubelet_answered_at(
    state: NodeState, record: NodeRecord, now: datetime, lease: NodeLease | None
) -> datetime | None:
    """Return when a node's kubelet last answered; None in a new boot until it is ready.

    While the node controller reports Ready or not Ready, it receives the kubelet's heartbeats.
    ``lease`` is the lease of the kubelet, used only if the status is unknown.
    """
    if state.ready != UNKNOWN:
        return now
    if record.phase in _COMING:
        return None
    return state.ready_since if lease is None else lease.observed_at


def followed_since(
    record: NodeRecord, first_seen: datetime, observed_since: datetime | None
) -> datetime | None:
    """Return since when a heartbeat of a node's agent is missed if there is none.

    After an outage, the agent of a healthy node has time to report again. That of a node that is
    being repaired does not count as heard because of an outage, nor does one that is known to be
    silent because another process follows the node now: None, only its lease counts.
    """
    if is_known_silent(record):
        return None
    if observed_since is None or record.remediation is not None:
        return first_seen
    return max(first_seen, observed_since)


def agent_heartbeat_at(
    state: NodeState,
    parsed: ParsedAnnotations,
    record: NodeRecord,
    lease: NodeLease | None,
    since: datetime | None,
) -> datetime | None:
    """Return the last heartbeat of a node's agent; None before it reports in this boot.

    Args:
        state: state of the node.
        parsed: parsed annotations of the node.
        record: record of the node.
        lease: lease of the agent.
        since: when this process began to follow the node, or could read it again after an outage:
            an earlier report counts as a heartbeat at that time. None if no report does: the agent
            was known to be silent, or this process only displays nodes.

    """
    report = parsed.report
    if record.phase in _COMING:
        if lease is None or report is None or not is_present(report, state):
            return None
        return lease.observed_at if lease.is_live and lease.holder == report.boot_id else None
    known = [] if lease is None else [lease.observed_at]
    if report is not None and since is not None:
        known.append(since)
    return max(known, default=None)


def is_fenced(state: NodeState, parsed: ParsedAnnotations, record: NodeRecord) -> bool:
    """Whether no process of the boot before the repair can run, though its pods remain."""
    remediation = record.remediation
    if remediation is None:
        return False
    if record.phase is Phase.REPLACING and remediation.is_machine_removed:
        return True
    is_rebooted = record.phase is Phase.REBOOTING and _machine(state, parsed) != remediation.machine
    return state.is_off or is_rebooted


def _machine(state: NodeState, parsed: ParsedAnnotations) -> str:
    return f"{state.provider_id}#{boot_id(state, parsed)}"
