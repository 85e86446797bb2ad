import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from holdfast.adapters.telemetry.detection_lines import detection_lines
from holdfast.model.conditions import node_conditions
from holdfast.model.health import Fault, Finding, Remedy, Severity
from holdfast.model.names import Condition, Reason
from holdfast.model.report import NodeReport

NOW = datetime(2024, 8, 21, 11, 35, 35, 532_900, tzinfo=UTC)
XID = 'NVRM: Xid (PCI:0000:b9:00): 71, name="x"'

FAULT = Fault(
    family="xid",
    condition=Condition.NVIDIA_REBOOT,
    reason=Reason.XID_REBOOT,
    severity=Severity.FATAL,
    remedy=Remedy.REBOOT,
    message=XID,
    since=NOW - timedelta(seconds=1),
    code=71,
)
NOTICE = Finding(
    family="xid",
    condition=Condition.SOFTWARE,
    reason=Reason.XID_USER_APP,
    severity=Severity.INFO,
    remedy=Remedy.NONE,
    message="Xid 13",
    observed_at=NOW,
)


def report(*faults: Fault, notices: tuple[Finding, ...] = (), boot_id: str = "b1") -> NodeReport:
    return NodeReport(
        node="n1",
        boot_id=boot_id,
        sequence=1,
        reported_at=NOW,
        faults=faults,
        notices=notices,
        conditions=node_conditions((), faults, NOW),
    )


def after(before: NodeReport, now: NodeReport) -> NodeReport:
    return replace(now, conditions=node_conditions(before.conditions, now.faults, NOW))


def reported(before: NodeReport | None, now: NodeReport) -> list[dict]:
    return [json.loads(line) for line in detection_lines(before, now)]


HEALTHY = report()


def test_a_new_fault_is_reported_in_both_forms_that_hyperpod_has() -> None:
    line = reported(HEALTHY, after(HEALTHY, report(FAULT)))[0]

    assert line == {
        "level": "info",
        "ts": "2024-08-21T11:35:35.532Z",
        "msg": "NPD caught event: %v",
        "details: ": {
            "severity": "warn",
            "timestamp": "2024-08-21T11:35:34.532Z",
            "reason": "NvidiaGpuXidErrorPendingReboot",
            "message": "Node condition NvidiaErrorReboot is now: True, reason: "
            'NvidiaGpuXidErrorPendingReboot, message: "NVRM: Xid (PCI:0000:b9:00): 71, '
            'name=\\"x\\""',
        },
        "Event detail": {
            "Action": "reboot",
            "Type": "NvidiaErrorReboot",
            "Reason": "NvidiaGpuXidErrorPendingReboot",
            "Message": XID,
        },
        "HealthMonitoringAgentDetectionEvent": "HealthEvent",
    }


def test_a_condition_that_is_set_and_one_that_clears_are_reported_once_each() -> None:
    faulty = after(HEALTHY, report(FAULT))
    cleared = after(faulty, HEALTHY)

    (_, line) = reported(HEALTHY, faulty)
    assert (line["msg"], line["condition type: "]) == ("NPD caught ", "NvidiaErrorReboot")
    assert line["with condition details "] == {
        "type": "NvidiaErrorReboot",
        "status": "True",
        "transition": "2024-08-21T11:35:35.532Z",
        "reason": "NvidiaGpuXidErrorPendingReboot",
        "message": XID,
    }
    (line,) = reported(faulty, cleared)
    assert line["with condition details "]["status"] == "False"
    assert line["with condition details "]["reason"] == "NvidiaNoErrorRequiredReboot"
    assert reported(cleared, cleared) == []


def test_the_first_report_ever_reports_the_standing_conditions() -> None:
    assert {line["condition type: "] for line in reported(None, HEALTHY)} == {
        "NvidiaErrorTerminate",
        "NvidiaErrorReboot",
    } | {line.type for line in HEALTHY.conditions}


def test_what_is_only_reported_again_is_not_reported() -> None:
    faulty = after(HEALTHY, report(FAULT, notices=(NOTICE,)))
    again = replace(
        faulty,
        sequence=9,
        faults=(replace(FAULT, count=5, message="again"),),
        notices=(replace(NOTICE, observed_at=NOW + timedelta(seconds=5)),),
    )

    assert reported(faulty, again) == []


def test_a_fault_that_now_asks_for_more_is_reported() -> None:
    faulty = after(HEALTHY, report(FAULT))

    (line, _) = reported(
        faulty, after(faulty, report(replace(FAULT, remedy=Remedy.REPLACE, reason="R")))
    )
    assert line["Event detail"]["Action"] == "replace"
    (line,) = reported(faulty, replace(faulty, faults=(replace(FAULT, remedy=Remedy.REPLACE),)))
    assert line["Event detail"]["Action"] == "replace"


def test_the_same_fault_in_another_boot_is_a_new_one() -> None:
    faulty = after(HEALTHY, report(FAULT, notices=(NOTICE,)))

    lines = reported(faulty, replace(faulty, boot_id="b2"))

    assert [line["Event detail"]["Action"] for line in lines] == ["reboot", "none"]


def test_a_notice_is_reported_without_a_condition() -> None:
    (line,) = reported(HEALTHY, replace(HEALTHY, notices=(NOTICE,)))

    assert line["details: "]["severity"] == "info"
    assert line["details: "]["message"] == "Xid 13"
    assert line["Event detail"]["Action"] == "none"


def test_a_line_is_one_line_whatever_is_in_it() -> None:
    hostile = replace(FAULT, message="a\nb\u2028c\x00\udcffd")

    lines = detection_lines(HEALTHY, after(HEALTHY, report(hostile)))

    assert all(line.isascii() and "\n" not in line for line in lines)
    assert json.loads(lines[0])["Event detail"]["Message"] == hostile.message
