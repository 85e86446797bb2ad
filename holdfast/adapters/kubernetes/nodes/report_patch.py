"""Patches of a Node object from the agent's report: pure."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.client.values import format_time
from holdfast.adapters.kubernetes.nodes.hardware import pack
from holdfast.kit.serial import parse_value, to_plain
from holdfast.model.conditions import ConditionStatus, NodeCondition, node_conditions
from holdfast.model.health import Fault, Remedy, Urgency
from holdfast.model.names import (
    AGENT_CONDITIONS,
    AGENT_HEALTH_STATUS,
    FAULT_DETAILS_LIMIT,
    HARDWARE,
    RECORD,
    REPORT,
    HealthStatus,
    Labels,
)
from holdfast.model.nodes import NodeRecord, Phase
from holdfast.model.report import NodeReport

MESSAGE_CHARS: Final = 256
"""Maximum length of a message for the API server; lines of the kernel rarely exceed it."""

HEARTBEAT: Final = timedelta(minutes=5)
"""Interval of heartbeats of an unchanged condition, as in the kubelet and
node-problem-detector."""

_SUSPECTS: Final = 3
"""Number of suspects kept, the oldest: one is enough to have the node checked."""

_EFFECT: Final = "NoSchedule"

_HELD: Final = frozenset(Phase) - {Phase.JOINING, Phase.SCHEDULABLE}
"""Phases in which the controller withholds the node from jobs. The agent then leaves labels and
taints, including those that people set, unchanged."""

_UNREADABLE: Final = (ValueError, TypeError)
"""Errors of an annotation that is not valid, or not text."""


def brief(report: NodeReport) -> NodeReport:
    """Return the part of a report to store: the worst faults, the newest of equal ones.

    Devices have an annotation of their own.
    """
    worst = sorted(report.faults, key=lambda fault: (_weight(fault), fault.since), reverse=True)
    selected = sorted(worst[:FAULT_DETAILS_LIMIT], key=lambda fault: fault.since)
    return NodeReport(
        node=report.node,
        boot_id=report.boot_id,
        sequence=report.sequence,
        reported_at=report.reported_at,
        faults=tuple(replace(fault, message=short(fault.message)) for fault in selected),
        suspects=tuple(
            replace(one, message=short(one.message)) for one in report.suspects[:_SUSPECTS]
        ),
        drill_until=report.drill_until,
    )


def reported(node: Json) -> NodeReport | None:
    """Return the report stored on the node; None if there is none or it cannot be parsed."""
    try:
        return parse_value(NodeReport, _annotations(node).get(REPORT, "null"))
    except _UNREADABLE:
        return None


def node_patch(node: Json, report: NodeReport, labels: Labels) -> Json | None:
    """Return the merge patch that writes ``report`` to ``node``, the Node object as read.

    The health label and the taint are set if a fault requires a repair of the node and the node is
    not marked yet, and if its evidence is newer than the report that the node carries: who releases
    a node knows the stored evidence. They are removed only while the agent's own value is set.

    Returns:
        None if the node is up to date. The patch holds the object's resource version, so that it
        cannot overwrite concurrent changes.

    """
    last_report = brief(report)
    worst = max(last_report.faults, key=_weight, default=None)
    desired_labels: dict[str, str | None] = {
        labels.fault_types: worst.condition if worst is not None else None,
        labels.fault_reasons: worst.reason if worst is not None else None,
    }
    desired_annotations: dict[str, str | None] = {
        REPORT: _report_text(node, last_report),
        HARDWARE: pack(report.hardware),
        labels.fault_details: _details(report.faults) if worst is not None else None,
    }
    label, mark, taints = _marked(node, last_report, labels)
    desired_labels[labels.node_health_status] = label
    desired_annotations[AGENT_HEALTH_STATUS] = mark
    metadata = {
        "labels": _changes(_labels(node), desired_labels),
        "annotations": _changes(_annotations(node), desired_annotations),
    }
    spec = {} if taints == _taints(node) else {"taints": taints}
    if not any(metadata.values()) and not spec:
        return None
    changed = {key: value for key, value in metadata.items() if value}
    return {"metadata": {**_version(node), **changed}, "spec": spec}


def conditions_patch(node: Json, report: NodeReport, now: datetime) -> Json | None:
    """Return the strategic merge patch of the node's status; None if no update or heartbeat is due.

    A condition that the node has keeps its transition time, whatever the agent has stored.
    """
    known = {entry["type"]: entry for entry in _conditions(node)}
    before = {condition.type: condition for condition in report.conditions}
    before |= {condition.type: condition for condition in _own(known.values(), report.reported_at)}
    conditions = node_conditions(before.values(), report.faults, report.reported_at)
    expected = [_entry(condition) for condition in conditions]
    if all(_is_fresh(known.get(entry["type"]), entry, now) for entry in expected):
        return None
    heartbeat = {"lastHeartbeatTime": format_time(now)}
    status = {"conditions": [{**entry, **heartbeat} for entry in expected]}
    return {"metadata": _version(node), "status": status}


def short(message: str) -> str:
    """Return a message shortened to ``MESSAGE_CHARS``."""
    return message if len(message) <= MESSAGE_CHARS else f"{message[: MESSAGE_CHARS - 1]}…"


def _marked(
    node: Json, last_report: NodeReport, labels: Labels
) -> tuple[str | None, str | None, list[Json]]:
    """Return the desired health label, agent annotation and taints of the node."""
    label = _labels(node).get(labels.node_health_status)
    own = _annotations(node).get(AGENT_HEALTH_STATUS)
    record = _record(node)
    phase = record.phase if record is not None else None
    expected = _needed(fault for fault in last_report.faults if not _is_forgiven(fault, record))
    is_own = own is not None and label == own
    is_free = label is None or label == HealthStatus.SCHEDULABLE
    taints = _taints(node)
    if phase in _HELD:
        return label, None, taints
    if expected is not None and (is_own or (is_free and _has_changed(reported(node), last_report))):
        return expected, expected, _with_taint(taints, labels)
    if not is_own:
        return label, None, taints
    if phase is Phase.SCHEDULABLE:
        return HealthStatus.SCHEDULABLE, None, _without_taint(taints, labels)
    return None, None, _without_taint(taints, labels) if phase is None else taints


def _needed(faults: Iterable[Fault]) -> HealthStatus | None:
    """Return the health label that requests the repair for the faults; None for no repair."""
    remedies = {fault.remedy for fault in faults if fault.remedy.touches_node}
    if Remedy.REPLACE in remedies:
        return HealthStatus.PENDING_REPLACEMENT
    return HealthStatus.PENDING_REBOOT if remedies else None


def _has_changed(before: NodeReport | None, last_report: NodeReport) -> bool:
    """Whether ``last_report`` has evidence for a repair that is not in ``before``."""
    is_same_boot = before is not None and before.boot_id == last_report.boot_id
    known = set(map(_evidence, before.faults)) if before is not None and is_same_boot else set()
    return any(f.remedy.touches_node and _evidence(f) not in known for f in last_report.faults)


def _evidence(fault: Fault) -> object:
    return (fault.key, fault.remedy, fault.seen_at or fault.since)


def _weight(fault: Fault) -> tuple[int, bool]:
    return (fault.remedy.strength, fault.urgency is Urgency.IMMEDIATE)


def _record(node: Json) -> NodeRecord | None:
    """Return the controller's record of the node; None without a controller.

    A record that cannot be parsed counts as a repair in progress.
    """
    text = _annotations(node).get(RECORD)
    if text is None:
        return None
    try:
        return parse_value(NodeRecord, text)
    except _UNREADABLE:
        return NodeRecord(phase=Phase.QUARANTINED, phase_since=datetime.min.replace(tzinfo=UTC))


def _is_forgiven(fault: Fault, record: NodeRecord | None) -> bool:
    """Whether the node was released after the newest evidence of the fault."""
    cleared_at = record.cleared_at if record is not None else None
    return cleared_at is not None and (fault.seen_at or fault.since) <= cleared_at


def _report_text(node: Json, last_report: NodeReport) -> str:
    """Return ``last_report`` as JSON, or the node's own text if only its time differs."""
    before = reported(node)
    is_known = before is not None and last_report == replace(
        before, sequence=last_report.sequence, reported_at=last_report.reported_at
    )
    return _annotations(node)[REPORT] if is_known else _compact(to_plain(last_report))


def _details(faults: Iterable[Fault]) -> str:
    newest = sorted(faults, key=lambda fault: fault.since)[-FAULT_DETAILS_LIMIT:]
    return _compact(
        [
            {
                "timestamp": format_time(fault.since),
                "type": fault.condition,
                "reason": fault.reason,
                "message": short(fault.message),
            }
            for fault in newest
        ]
    )


def _with_taint(taints: list[Json], labels: Labels) -> list[Json]:
    if any(_is_key(taint, labels) for taint in taints):  # a key may have only one taint
        return taints
    own = {
        "key": labels.node_health_status,
        "value": HealthStatus.UNSCHEDULABLE.value,
        "effect": _EFFECT,
    }
    return [*taints, own]


def _without_taint(taints: list[Json], labels: Labels) -> list[Json]:
    def has_own_key(taint: Json) -> bool:
        return _is_key(taint, labels) and taint.get("value") == HealthStatus.UNSCHEDULABLE

    return [taint for taint in taints if not has_own_key(taint)]


def _is_key(taint: Json, labels: Labels) -> bool:
    return (taint["key"], taint["effect"]) == (labels.node_health_status, _EFFECT)


def _own(entries: Iterable[Json], now: datetime) -> Iterator[NodeCondition]:
    """Yield the node's conditions that agents write; unreadable times are replaced by ``now``."""
    for entry in entries:
        if entry["type"] in AGENT_CONDITIONS:
            is_false = entry["status"] == ConditionStatus.FALSE
            yield NodeCondition(
                type=entry["type"],
                status=ConditionStatus.FALSE if is_false else ConditionStatus.TRUE,
                reason=entry.get("reason") or "",
                message=entry.get("message") or "",
                transition=_moment(entry.get("lastTransitionTime")) or now,
            )


def _entry(condition: NodeCondition) -> Json:
    return {
        "type": condition.type,
        "status": condition.status.value,
        "reason": condition.reason,
        "message": short(condition.message),
        "lastTransitionTime": format_time(condition.transition),
    }


def _is_fresh(known: Json | None, expected: Json, now: datetime) -> bool:
    """Whether ``known`` has the wanted values and a recent heartbeat."""
    if known is None or any(known.get(key) != value for key, value in expected.items()):
        return False
    confirmed_at = _moment(known.get("lastHeartbeatTime"))
    return confirmed_at is not None and abs(now - confirmed_at) < HEARTBEAT


def _moment(text: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def _changes(
    present: Mapping[str, str], expected: Mapping[str, str | None]
) -> dict[str, str | None]:
    return {key: value for key, value in expected.items() if present.get(key) != value}


def _version(node: Json) -> Json:
    return {"resourceVersion": node["metadata"]["resourceVersion"]}


def _labels(node: Json) -> Mapping[str, str]:
    return node["metadata"].get("labels") or {}


def _annotations(node: Json) -> Mapping[str, str]:
    return node["metadata"].get("annotations") or {}


def _taints(node: Json) -> list[Json]:
    return (node.get("spec") or {}).get("taints") or []


def _conditions(node: Json) -> list[Json]:
    return (node.get("status") or {}).get("conditions") or []


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
