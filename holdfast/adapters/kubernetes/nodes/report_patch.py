"""What the report of an agent makes of its Node object: pure, from the object to the patch."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.client.values import format_time
from holdfast.kit.serial import parse_value, to_plain
from holdfast.model.conditions import ConditionStatus, NodeCondition, node_conditions
from holdfast.model.health import Fault, Remedy, Urgency
from holdfast.model.names import (
    AGENT_CONDITIONS,
    AGENT_HEALTH_STATUS,
    FAULT_DETAILS_LIMIT,
    RECORD,
    REPORT,
    HealthStatus,
    Labels,
)
from holdfast.model.nodes import NodeRecord, Phase
from holdfast.model.report import NodeReport

MESSAGE_CHARS: Final = 256
"""Of a message that goes to the API server; a kernel's line is seldom longer."""

HEARTBEAT: Final = timedelta(minutes=5)
"""Between two signs of life of an unchanged condition, as the kubelet and node-problem-detector
give them."""

_SUSPECTS: Final = 3
"""Suspects that the cluster keeps, the oldest: one is enough for a check of the node."""

_EFFECT: Final = "NoSchedule"

_HELD: Final = frozenset(Phase) - {Phase.JOINING, Phase.SCHEDULABLE}
"""Phases in which the controller keeps the node from jobs: its marks and people's answers to them
are none of the agent's business."""

_UNREADABLE: Final = (ValueError, TypeError)
"""Errors of an annotation that is not valid, or not text."""


def brief(report: NodeReport) -> NodeReport:
    """What the cluster keeps of a report: the worst faults, of equal ones the newest."""
    worst = sorted(report.faults, key=lambda fault: (_weight(fault), fault.since), reverse=True)
    kept = sorted(worst[:FAULT_DETAILS_LIMIT], key=lambda fault: fault.since)
    return NodeReport(
        node=report.node,
        boot_id=report.boot_id,
        sequence=report.sequence,
        reported_at=report.reported_at,
        faults=tuple(replace(fault, message=short(fault.message)) for fault in kept),
        suspects=tuple(
            replace(one, message=short(one.message)) for one in report.suspects[:_SUSPECTS]
        ),
        drill_until=report.drill_until,
    )


def reported(node: Json) -> NodeReport | None:
    """The report that the node carries; None if it has none or one that nobody can read."""
    try:
        return parse_value(NodeReport, _annotations(node).get(REPORT, "null"))
    except _UNREADABLE:
        return None


def node_patch(node: Json, report: NodeReport, labels: Labels) -> Json | None:
    """The merge patch that writes ``report`` to ``node``, the Node object as it was read.

    The health label and the taint are set if a fault needs the node to be repaired and nobody has
    marked the node yet, and when its evidence is newer than what the node carries: whoever gives
    the node free knows of the old. They are taken away only while they are the agent's own.

    Returns:
        None if the node says all of it already. The patch holds the object's resource version, so
        that it cannot undo what somebody else writes at the same time.

    """
    last_report = brief(report)
    worst = max(last_report.faults, key=_weight, default=None)
    wanted_labels: dict[str, str | None] = {
        labels.fault_types: worst.condition if worst is not None else None,
        labels.fault_reasons: worst.reason if worst is not None else None,
    }
    wanted_annotations: dict[str, str | None] = {
        REPORT: _report_text(node, last_report),
        labels.fault_details: _details(report.faults) if worst is not None else None,
    }
    label, mark, taints = _marked(node, last_report, labels)
    wanted_labels[labels.node_health_status] = label
    wanted_annotations[AGENT_HEALTH_STATUS] = mark
    metadata = {
        "labels": _changes(_labels(node), wanted_labels),
        "annotations": _changes(_annotations(node), wanted_annotations),
    }
    spec = {} if taints == _taints(node) else {"taints": taints}
    if not any(metadata.values()) and not spec:
        return None
    changed = {key: value for key, value in metadata.items() if value}
    return {"metadata": {**_version(node), **changed}, "spec": spec}


def conditions_patch(node: Json, report: NodeReport, now: datetime) -> Json | None:
    """The strategic merge patch of the node's status; None if nothing is new and no beat is due.

    A condition that the node has already keeps its transition, whatever the agent remembers.
    """
    known = {entry["type"]: entry for entry in _conditions(node)}
    before = {condition.type: condition for condition in report.conditions}
    before |= {condition.type: condition for condition in _own(known.values(), report.reported_at)}
    conditions = node_conditions(before.values(), report.faults, report.reported_at)
    wanted = [_entry(condition) for condition in conditions]
    if all(_is_fresh(known.get(entry["type"]), entry, now) for entry in wanted):
        return None
    beat = {"lastHeartbeatTime": format_time(now)}
    status = {"conditions": [{**entry, **beat} for entry in wanted]}
    return {"metadata": _version(node), "status": status}


def short(message: str) -> str:
    """A message of bounded length."""
    return message if len(message) <= MESSAGE_CHARS else f"{message[: MESSAGE_CHARS - 1]}…"


def _marked(
    node: Json, last_report: NodeReport, labels: Labels
) -> tuple[str | None, str | None, list[Json]]:
    """The health label, the agent's mark and the taints that the node is to have."""
    label = _labels(node).get(labels.node_health_status)
    own = _annotations(node).get(AGENT_HEALTH_STATUS)
    record = _record(node)
    phase = record.phase if record is not None else None
    wanted = _needed(fault for fault in last_report.faults if not _is_forgiven(fault, record))
    is_own = own is not None and label == own
    is_free = label is None or label == HealthStatus.SCHEDULABLE
    taints = _taints(node)
    if phase in _HELD:
        return label, None, taints
    if wanted is not None and (is_own or (is_free and _has_news(reported(node), last_report))):
        return wanted, wanted, _with_taint(taints, labels)
    if not is_own:
        return label, None, taints
    if phase is Phase.SCHEDULABLE:
        return HealthStatus.SCHEDULABLE, None, _without_taint(taints, labels)
    return None, None, _without_taint(taints, labels) if phase is None else taints


def _needed(faults: Iterable[Fault]) -> HealthStatus | None:
    """The label that says which repair the faults call for."""
    remedies = {fault.remedy for fault in faults if fault.remedy.touches_node}
    if Remedy.REPLACE in remedies:
        return HealthStatus.PENDING_REPLACEMENT
    return HealthStatus.PENDING_REBOOT if remedies else None


def _has_news(before: NodeReport | None, last_report: NodeReport) -> bool:
    """Whether ``last_report`` has evidence for a repair that ``before`` had not."""
    is_same_boot = before is not None and before.boot_id == last_report.boot_id
    known = set(map(_evidence, before.faults)) if before is not None and is_same_boot else set()
    return any(f.remedy.touches_node and _evidence(f) not in known for f in last_report.faults)


def _evidence(fault: Fault) -> object:
    return (fault.key, fault.remedy, fault.seen_at or fault.since)


def _weight(fault: Fault) -> tuple[int, bool]:
    return (fault.remedy.strength, fault.urgency is Urgency.IMMEDIATE)


def _record(node: Json) -> NodeRecord | None:
    """What the controller remembers; None without a controller.

    A record that cannot be read counts as a repair that is under way.
    """
    text = _annotations(node).get(RECORD)
    if text is None:
        return None
    try:
        return parse_value(NodeRecord, text)
    except _UNREADABLE:
        return NodeRecord(phase=Phase.QUARANTINED, phase_since=datetime.min.replace(tzinfo=UTC))


def _is_forgiven(fault: Fault, record: NodeRecord | None) -> bool:
    """Whether somebody gave the node free after all that is known of the fault."""
    cleared_at = record.cleared_at if record is not None else None
    return cleared_at is not None and (fault.seen_at or fault.since) <= cleared_at


def _report_text(node: Json, last_report: NodeReport) -> str:
    """``last_report`` as text; the node's own text where it differs in nothing but its time."""
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
    if any(_is_key(taint, labels) for taint in taints):  # one is all that a key may have
        return taints
    ours = {
        "key": labels.node_health_status,
        "value": HealthStatus.UNSCHEDULABLE.value,
        "effect": _EFFECT,
    }
    return [*taints, ours]


def _without_taint(taints: list[Json], labels: Labels) -> list[Json]:
    def is_ours(taint: Json) -> bool:
        return _is_key(taint, labels) and taint.get("value") == HealthStatus.UNSCHEDULABLE

    return [taint for taint in taints if not is_ours(taint)]


def _is_key(taint: Json, labels: Labels) -> bool:
    return (taint["key"], taint["effect"]) == (labels.node_health_status, _EFFECT)


def _own(entries: Iterable[Json], now: datetime) -> Iterator[NodeCondition]:
    """Those of the node's conditions that agents write; what cannot be read is as of ``now``."""
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


def _is_fresh(known: Json | None, wanted: Json, now: datetime) -> bool:
    """Whether ``known`` says what is wanted, and was confirmed not long ago."""
    if known is None or any(known.get(key) != value for key, value in wanted.items()):
        return False
    confirmed_at = _moment(known.get("lastHeartbeatTime"))
    return confirmed_at is not None and abs(now - confirmed_at) < HEARTBEAT


def _moment(text: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def _changes(present: Mapping[str, str], wanted: Mapping[str, str | None]) -> dict[str, str | None]:
    return {key: value for key, value in wanted.items() if present.get(key) != value}


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
