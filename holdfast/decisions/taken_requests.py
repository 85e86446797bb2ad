"""Requests on nodes under repair: which are already carried out, and which wait for its end."""

from holdfast.decisions.faults import request_fault
from holdfast.decisions.planned_work import is_requested_check
from holdfast.decisions.policy import RecoveryMode, RemediationPolicy
from holdfast.model.health import Urgency
from holdfast.model.names import Condition, DeepCheck
from holdfast.model.nodes import NodeRecord, NodeView, Phase, Remediation
from holdfast.model.requests import Request, Verb


def yields(node: NodeView, policy: RemediationPolicy) -> bool:
    """Return whether the request is a check that waits for a repair that goes first."""
    if node.request is None or not is_requested_check(node.request):
        return False
    remediation = node.record.remediation
    is_repair = remediation is not None and remediation.condition != Condition.REQUESTED
    is_automatic = policy.node_recovery is RecoveryMode.AUTOMATIC
    return node.request.urgency is Urgency.DEFERRED and is_repair and is_automatic


def is_request_taken(node: NodeView) -> bool:
    """Return whether the node's request is already being carried out and can be cleared."""
    return node.request is not None and carries_out(node.record, node.request)


def carries_out(record: NodeRecord, request: Request) -> bool:
    """Return whether the remediation of a node carries out a request on it."""
    remediation = record.remediation
    if remediation is not None and remediation.request_id == request.id:
        return True
    match record.phase:
        case Phase.QUARANTINED | Phase.DRAINING:
            return remediation is not None and _is_repeated(request, remediation, record.kinds)
        case Phase.CHECKING:
            return request.verb is Verb.DEEP_CHECK
        case Phase.REBOOTING:
            return request.verb is Verb.REBOOT
        case Phase.REPLACING:
            return request.verb in (Verb.REBOOT, Verb.REPLACE)
    return False


def _is_repeated(request: Request, remediation: Remediation, kinds: tuple[DeepCheck, ...]) -> bool:
    """Return whether a remediation already does what a request asks for, and no later."""
    requested = request_fault(request)
    return (
        requested is not None
        and remediation.condition == Condition.REQUESTED
        and remediation.reason == requested.reason
        and (remediation.urgency is Urgency.IMMEDIATE or requested.urgency is Urgency.DEFERRED)
        and (request.verb is not Verb.DEEP_CHECK or request.checks == kinds)
    )
