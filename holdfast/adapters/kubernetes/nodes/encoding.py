"""Conversion between Node objects and the core's records. Pure functions."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.client.values import compact_json, digest
from holdfast.adapters.kubernetes.nodes.node import NO_SCHEDULE, Conventions, NodeState, Taint
from holdfast.decisions.node_labels import deep_check_status, health_status, is_out_of_service
from holdfast.kit.rejections import Rejection, excerpt
from holdfast.kit.serial import parse_value
from holdfast.model.names import (
    AGENT_HEALTH_STATUS,
    CORDONED,
    PENDING_REPLACE,
    RECORD,
    REPORT,
    REQUEST,
    DeepCheckStatus,
    HealthStatus,
)
from holdfast.model.nodes import NodeRecord, NodeView, Phase
from holdfast.model.report import NodeReport
from holdfast.model.requests import Request, Verb

_NEEDS_REMEDIATION: Final = frozenset(
    (Phase.QUARANTINED, Phase.DRAINING, Phase.REBOOTING, Phase.REPLACING)
)
_ASKS: Final[Mapping[str, Verb]] = {
    HealthStatus.PENDING_REBOOT: Verb.REBOOT,
    HealthStatus.PENDING_REPLACEMENT: Verb.REPLACE,
    PENDING_REPLACE: Verb.REPLACE,
    HealthStatus.SCHEDULABLE: Verb.RELEASE,
}
"""Repair that a user requests with a value of the health label."""

_OF_NEW_NODES: Final = frozenset((HealthStatus.SCHEDULABLE, HealthStatus.UNSCHEDULABLE))
"""Values that a node may have when it joins; they request nothing."""

_CHECK_IMAGE: Final = "kubernetes.check.image"
"""Setting without which no deep health check runs."""

_HOLD_CHARS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedAnnotations:
    """Parsed annotations of a node."""

    record: NodeRecord | None = None
    report: NodeReport | None = None
    request: Request | None = None
    is_label_request: bool = False
    """Whether the request is a value of one of HyperPod's labels."""

    pause_reason: str = ""
    is_damaged: bool = False
    """Whether the record cannot be parsed; such a node is left unchanged."""

    rejected: tuple[Rejection, ...] = ()


def parse_annotations(
    state: NodeState, conventions: Conventions, now: datetime
) -> ParsedAnnotations:
    """Parse a node's annotations; ``now`` is the time of a request that has none.

    Never raises: what cannot be read is rejected.
    """
    rejected: list[Rejection] = []
    record = _record(state, rejected)
    report = _report(state, rejected)
    annotated = _annotated_request(state, conventions, now, rejected)
    labeled = _labelled_request(state, record, conventions, now, rejected) or _labelled_check(
        state, record, conventions, now, rejected
    )
    hold = None if state.hold is None else state.hold.strip() or "no reason given"
    return ParsedAnnotations(
        record=record,
        report=report,
        request=annotated or labeled,
        is_label_request=annotated is None and labeled is not None,
        pause_reason="" if hold is None else hold[:_HOLD_CHARS],
        is_damaged=state.record is not None and record is None,
        rejected=tuple(rejected),
    )


def is_present(report: NodeReport | None, state: NodeState) -> bool:
    """Whether a report is of the current boot, as far as the kubelet has reported it."""
    return report is not None and (not state.boot_id or report.boot_id == state.boot_id)


def boot_id(state: NodeState, parsed: ParsedAnnotations) -> str:
    """Boot ID from the agent, else from the kubelet; empty if neither has reported one."""
    return parsed.report.boot_id if parsed.report is not None else state.boot_id


def node_patch(
    state: NodeState, parsed: ParsedAnnotations, record: NodeRecord, conventions: Conventions
) -> Json | None:
    """Return the merge patch that writes ``record`` to a node; None if it exists already.

    It bears the version of ``state``, so that it undoes nothing that was written since.
    """
    return _marks_patch(state, parsed, record, compact_json(record), conventions)


def _marks_patch(
    state: NodeState,
    parsed: ParsedAnnotations,
    record: NodeRecord,
    text: str,
    conventions: Conventions,
) -> Json | None:
    """Return the patch of ``node_patch``; ``text`` is the serialized record."""
    is_cordoned = _is_cordoned_by_us(state, record)
    desired_labels = _label_changes(state, parsed, record, conventions)
    desired_annotations = _changes(
        (RECORD, state.record, text),
        (AGENT_HEALTH_STATUS, state.agent_health_status, None),
        (CORDONED, state.cordoned, "true" if is_cordoned else None),
    )
    spec: Json = {}
    taints = _taints(state, record, conventions)
    if taints != state.taints:
        spec["taints"] = [dict(taint) for taint in taints]
    if is_cordoned and not state.is_unschedulable:
        spec["unschedulable"] = True
    elif not is_cordoned and state.cordoned is not None and state.is_unschedulable:
        spec["unschedulable"] = None
    return _versioned(state, desired_labels, desired_annotations, spec)


def _label_changes(
    state: NodeState, parsed: ParsedAnnotations, record: NodeRecord | None, conventions: Conventions
) -> Json:
    """Return the changes that make HyperPod's labels match the record."""
    labels, deep_check = conventions.labels, state.deep_check
    if record is not None:
        view = NodeView(
            name=state.name,
            provider_id=state.provider_id,
            boot_id=boot_id(state, parsed),
            record=record,
        )
        deep_check = deep_check_status(view)
    return _changes(
        (labels.node_health_status, state.health, _expected(record)),
        (labels.deep_health_check_status, state.deep_check, deep_check),
    )


def request_patch(
    state: NodeState, parsed: ParsedAnnotations, request_id: str, conventions: Conventions
) -> Json | None:
    """Return the merge patch that clears a request from a node; None if it has another or none."""
    if parsed.request is None or parsed.request.id != request_id:
        return None
    if parsed.is_label_request:
        return _versioned(state, _label_changes(state, parsed, parsed.record, conventions), {}, {})
    return _versioned(state, {}, {REQUEST: None}, {})


def new_request_patch(state: NodeState, parsed: ParsedAnnotations, request: Request) -> Json | None:
    """Return the merge patch that writes a request to a node; None if it has one already."""
    if parsed.request is not None:
        return None
    return _versioned(state, {}, {REQUEST: compact_json(request)}, {})


def differs_from_record(
    state: NodeState, parsed: ParsedAnnotations, conventions: Conventions
) -> bool:
    """Whether the marks of a node differ from its record unintentionally."""
    if parsed.record is None or state.record is None or parsed.request is not None:
        return False
    if state.agent_health_status is not None and state.health == state.agent_health_status:
        return False  # the agent is ahead of the controller, which will handle the fault
    return _marks_patch(state, parsed, parsed.record, state.record, conventions) is not None


def _record(state: NodeState, rejected: list[Rejection]) -> NodeRecord | None:
    if state.record is None:
        return None
    try:
        record = parse_value(NodeRecord, state.record)
    except ValueError:
        record = None
    if record is None or (record.phase in _NEEDS_REMEDIATION and record.remediation is None):
        expected = "a value written by Holdfast; remove the annotation to reset the node's record"
        rejected.append(Rejection(key=RECORD, value=excerpt(state.record), expected=expected))
        return None
    return record


def _report(state: NodeState, rejected: list[Rejection]) -> NodeReport | None:
    if state.report is None:
        return None
    try:
        return parse_value(NodeReport, state.report)
    except ValueError:
        expected = "a value written by the node's agent"
        rejected.append(Rejection(key=REPORT, value=excerpt(state.report), expected=expected))
        return None


def _annotated_request(
    state: NodeState,
    conventions: Conventions,
    now: datetime,
    rejected: list[Rejection],
) -> Request | None:
    text = state.request
    if text is None:
        return None
    verbs = [verb for verb in Verb if conventions.can_check or verb is not Verb.DEEP_CHECK]
    try:
        if text in frozenset(Verb):
            verb = Verb(text)
            request = Request(
                id=digest(state.uid, text),
                verb=verb,
                requested_at=now,
                urgency=verb.usual_urgency,
            )
        else:
            request = parse_value(Request, text)
    except ValueError:
        request = None
    if request is None or request.verb not in verbs:
        expected = ", ".join(verbs)
        if not conventions.can_check:
            expected += f"; for deep-check, set {_CHECK_IMAGE}"
        rejected.append(Rejection(key=REQUEST, value=excerpt(text), expected=expected))
        return None
    return request


def _labelled_request(
    state: NodeState,
    record: NodeRecord | None,
    conventions: Conventions,
    now: datetime,
    rejected: list[Rejection],
) -> Request | None:
    """A health label that is neither our status nor the agent's mark is a user's request."""
    value = state.health
    if value is None or value in (_expected(record), state.agent_health_status):
        return None
    if record is None and any(_is_own(taint, conventions) for taint in state.taints):
        return None  # our own status, written before the record was lost
    is_new = record is None or (record.phase is Phase.JOINING and record.remediation is None)
    if is_new and value in _OF_NEW_NODES:
        return None
    verb = _ASKS.get(value)
    if verb is None:
        expected = f"one of {', '.join(_ASKS)}"
        key = conventions.labels.node_health_status
        rejected.append(Rejection(key=key, value=excerpt(value), expected=expected))
        return None
    author = state.label_author(conventions.labels.node_health_status)
    return Request(id=_id(state, record, value), verb=verb, requested_at=now, requested_by=author)


def _labelled_check(
    state: NodeState,
    record: NodeRecord | None,
    conventions: Conventions,
    now: datetime,
    rejected: list[Rejection],
) -> Request | None:
    """``InProgress`` on a schedulable node requests a deep health check."""
    value = DeepCheckStatus.IN_PROGRESS
    if record is None or record.phase is not Phase.SCHEDULABLE or state.deep_check != value:
        return None
    if not conventions.can_check:
        key = conventions.labels.deep_health_check_status
        expected = f"a value set by Holdfast; to enable deep health checks, set {_CHECK_IMAGE}"
        rejected.append(Rejection(key=key, value=value, expected=expected))
        return None
    return Request(
        id=_id(state, record, value),
        verb=Verb.DEEP_CHECK,
        requested_at=now,
        requested_by=state.label_author(conventions.labels.deep_health_check_status),
        urgency=Verb.DEEP_CHECK.usual_urgency,
    )


def _expected(record: NodeRecord | None) -> str | None:
    """Return the health label that matches the record."""
    return None if record is None else health_status(record)


def _id(state: NodeState, record: NodeRecord | None, value: str) -> str:
    """ID of a request; the same value is a new request after the node changed phase."""
    since = state.created_at if record is None else record.phase_since
    return digest(state.uid, value, since.isoformat())


def _is_cordoned_by_us(state: NodeState, record: NodeRecord) -> bool:
    """Whether the cordon is, or should be, ours; an existing one belongs to somebody else."""
    if state.cordoned is None:
        return is_out_of_service(record) and not state.is_unschedulable
    return record.phase is not Phase.SCHEDULABLE


def _taints(state: NodeState, record: NodeRecord, conventions: Conventions) -> tuple[Taint, ...]:
    others = tuple(taint for taint in state.taints if not _is_own(taint, conventions))
    if record.phase is Phase.SCHEDULABLE:
        return others
    key, value = conventions.labels.node_health_status, HealthStatus.UNSCHEDULABLE.value
    own = tuple(sorted({"key": key, "value": value, "effect": NO_SCHEDULE}.items()))
    return state.taints if own in state.taints else (*others, own)


def _is_own(taint: Taint, conventions: Conventions) -> bool:
    """Whether a taint is ours, by key and effect: HyperPod has used several values."""
    known = dict(taint)
    key = conventions.labels.node_health_status
    return (known.get("key"), known.get("effect")) == (key, NO_SCHEDULE)


def _changes(*entries: tuple[str, str | None, str | None]) -> dict[str, str | None]:
    """Return ``key -> value`` of the entries ``(key, present, wanted)`` that differ."""
    return {key: value for key, present, value in entries if present != value}


def _versioned(
    state: NodeState,
    labels: dict[str, str | None],
    annotations: dict[str, str | None],
    spec: Json,
) -> Json | None:
    changed = {"labels": labels, "annotations": annotations}
    metadata = {key: value for key, value in changed.items() if value}
    if not metadata and not spec:
        return None
    patch: Json = {"metadata": {"resourceVersion": str(state.resource_version), **metadata}}
    return {**patch, "spec": spec} if spec else patch
