"""The node condition ``AgentSilent``: pure."""

from datetime import datetime

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.client.values import format_time
from holdfast.adapters.kubernetes.nodes.node import NodeState
from holdfast.model.conditions import ConditionStatus
from holdfast.model.names import Condition, Reason
from holdfast.model.nodes import NodeRecord

_SILENT = "kubelet responds, but the Holdfast agent does not: faults of the node are not detected"
_REPORTS = "the Holdfast agent reports"


def is_condition_outdated(state: NodeState, record: NodeRecord | None) -> bool:
    """Whether the condition of a node differs from its record.

    A node whose agent was never silent has no such condition.
    """
    if record is None:
        return False
    is_silent = record.agent_silent_since is not None
    return is_silent is not (state.agent_silent == ConditionStatus.TRUE)


def agent_condition_patch(state: NodeState, record: NodeRecord, now: datetime) -> Json | None:
    """Return the strategic merge patch of a node's status; None if its condition is current."""
    if not is_condition_outdated(state, record):
        return None
    since = record.agent_silent_since
    condition = {
        "type": Condition.AGENT_SILENT.value,
        "status": (ConditionStatus.FALSE if since is None else ConditionStatus.TRUE).value,
        "reason": "AgentReports" if since is None else Reason.AGENT_SILENT.value,
        "message": _REPORTS if since is None else _SILENT,
        "lastHeartbeatTime": format_time(now),
        "lastTransitionTime": format_time(since or now),
    }
    return {"status": {"conditions": [condition]}}
