"""The log lines of HyperPod's health monitoring agent: JSON objects, one a line.

CloudWatch filters match ``HealthMonitoringAgentDetectionEvent``. Several keys end in a colon
and a blank, or in a blank, exactly as in HyperPod.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from holdfast.adapters.telemetry.line_output import LineOutput
from holdfast.model.conditions import NodeCondition
from holdfast.model.health import Fault, Finding, Remedy
from holdfast.model.report import NodeReport

MARK: Final = "HealthMonitoringAgentDetectionEvent"
"""Key of every line, for filters."""

EVENT_DETAIL: Final = "Event detail"
"""Key of the remedy and the reason in a line about a fault or a notice."""


def detection_lines(before: NodeReport | None, report: NodeReport) -> list[str]:
    """Changes in ``report``: a line for each new fault or notice and each changed condition.

    A fault is new if it was absent earlier in this boot, or has another remedy now. A condition
    has changed if its status or its reason has; unchanged ones are logged in full once.
    """
    last = before if before is not None and before.boot_id == report.boot_id else None
    known = {(fault.key, fault.remedy) for fault in last.faults} if last is not None else set()
    noticed = {notice.key for notice in last.notices} if last is not None else set()
    at = report.reported_at
    return [
        *(
            _fault_line(fault, at)
            for fault in report.faults
            if (fault.key, fault.remedy) not in known
        ),
        *(_notice_line(notice, at) for notice in report.notices if notice.key not in noticed),
        *(_condition_line(condition, at) for condition in _changed(before, report)),
    ]


def _changed(before: NodeReport | None, report: NodeReport) -> Iterator[NodeCondition]:
    known = {_state(condition) for condition in before.conditions} if before is not None else set()
    return (condition for condition in report.conditions if _state(condition) not in known)


def _state(condition: NodeCondition) -> tuple[str, str, str]:
    return (condition.type, condition.status, condition.reason)


def _fault_line(fault: Fault, at: datetime) -> str:
    change = f"Node condition {fault.condition} is now: True, reason: {fault.reason}"
    message = f"{change}, message: {json.dumps(fault.message, ensure_ascii=False)}"
    return _event_line(fault, fault.since, "warn", message, at)


def _notice_line(notice: Finding, at: datetime) -> str:
    return _event_line(notice, notice.observed_at, "info", notice.message, at)


def _event_line(
    about: Fault | Finding, seen_at: datetime, severity: str, message: str, at: datetime
) -> str:
    remedy = about.remedy if isinstance(about, Fault) else Remedy.NONE
    return _line(
        at,
        "NPD caught event: %v",
        {
            "details: ": {
                "severity": severity,
                "timestamp": _stamp(seen_at),
                "reason": about.reason,
                "message": message,
            },
            EVENT_DETAIL: {
                "Action": remedy.value,
                "Type": about.condition,
                "Reason": about.reason,
                "Message": about.message,
            },
        },
    )


def _condition_line(condition: NodeCondition, at: datetime) -> str:
    return _line(
        at,
        "NPD caught ",
        {
            "condition type: ": condition.type,
            "with condition details ": {
                "type": condition.type,
                "status": condition.status,
                "transition": _stamp(condition.transition),
                "reason": condition.reason,
                "message": condition.message,
            },
        },
    )


def _line(at: datetime, msg: str, rest: dict[str, object]) -> str:
    line = {"level": "info", "ts": _stamp(at), "msg": msg, **rest, MARK: "HealthEvent"}
    return json.dumps(line, separators=(",", ":"))


def _stamp(moment: datetime) -> str:
    text = moment.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


class JsonLog:
    """A ``ReportObserver`` that writes ``detection_lines``."""

    def __init__(self, output: LineOutput) -> None:
        """Write to ``output``."""
        self._output = output

    def changed(self, before: NodeReport | None, report: NodeReport) -> None:
        """See ``ReportObserver.changed``."""
        self._output.write(detection_lines(before, report))

    def heartbeat_sent(self) -> None:
        """See ``ReportObserver.heartbeat_sent``."""
        self._output.flush()
