"""Kubernetes Events about what an agent finds: pure, from two reports to the objects."""

import hashlib
import json
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from holdfast.adapters.kubernetes.client.errors import Json
from holdfast.adapters.kubernetes.client.values import format_time
from holdfast.adapters.kubernetes.nodes.report_patch import short
from holdfast.kit.serial import to_plain
from holdfast.model.health import Fault, Finding, Severity
from holdfast.model.report import NodeReport

NAMESPACE: Final = "default"
"""Namespace of Events about objects without a namespace."""

COMPONENT: Final = "holdfast-agent"
"""``source.component`` of the Events, and the field manager of the agent's writes."""

_NAME_CHARS: Final = 253 - 1 - 16
"""Characters left for the node in the name of an Event, beside a dot and the digest."""


def events(before: NodeReport | None, report: NodeReport) -> list[Json]:
    """Return the Events of faults that are new, repeated or cleared in ``report``.

    The name of an Event is a digest of what it is about, so that a fault has one, however often
    it is reported and by however many processes.
    """
    last = before if before is not None and before.boot_id == report.boot_id else None
    reported = {_state(fault) for fault in last.faults} if last is not None else set()
    noticed = {notice.key for notice in last.notices} if last is not None else set()
    return [
        *fault_events(report, (fault for fault in report.faults if _state(fault) not in reported)),
        *(_noticed(report, notice) for notice in report.notices if notice.key not in noticed),
        *([] if before is None else _cleared(before, report)),
    ]


def fault_events(report: NodeReport, faults: Iterable[Fault]) -> list[Json]:
    """Return the Events of ``faults``, which are in ``report``."""
    return [
        _event(
            report,
            "Warning",
            fault.reason,
            f"{fault.remedy}: {short(fault.message)}",
            about=(report.boot_id, fault.key, fault.remedy),
            span=(fault.since, fault.seen_at or report.reported_at),
            count=fault.count,
        )
        for fault in faults
    ]


def _noticed(report: NodeReport, notice: Finding) -> Json:
    return _event(
        report,
        "Normal" if notice.severity is Severity.INFO else "Warning",
        notice.reason,
        short(notice.message),
        about=(report.boot_id, notice.key),
        span=(notice.observed_at, notice.observed_at),
    )


def _cleared(before: NodeReport, report: NodeReport) -> list[Json]:
    active = {fault.key for fault in report.faults}
    return [
        _event(
            report,
            "Normal",
            fault.reason,
            f"resolved: {short(fault.message)}",
            about=(before.boot_id, fault.key, fault.remedy, "over"),
            span=(report.reported_at, report.reported_at),
        )
        for fault in before.faults
        if fault.key not in active
    ]


def _event(
    report: NodeReport,
    kind: str,
    reason: str,
    message: str,
    *,
    about: tuple[object, ...],
    span: tuple[datetime, datetime],
    count: int = 1,
) -> Json:
    digest = hashlib.sha256(json.dumps(to_plain(about)).encode()).hexdigest()[:16]
    node = report.node
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{node[:_NAME_CHARS]}.{digest}", "namespace": NAMESPACE},
        # The uid is the name, as the kubelet and node-problem-detector have it in their Events:
        # every kubectl describe shows these.
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node},
        "type": kind,
        "reason": reason,
        "message": message,
        "source": {"component": COMPONENT, "host": node},
        "reportingComponent": COMPONENT,
        "reportingInstance": node,
        "firstTimestamp": format_time(span[0]),
        "lastTimestamp": format_time(span[1]),
        "count": count,
    }


def _state(fault: Fault) -> object:
    return (fault.key, fault.remedy, fault.count)
