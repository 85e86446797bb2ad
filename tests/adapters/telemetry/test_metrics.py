from dataclasses import replace
from datetime import UTC, datetime, timedelta

from holdfast import __version__
from holdfast.adapters.telemetry.metrics import AgentMetrics, CountedHost
from holdfast.detectors.contract import LogLine, Readings
from holdfast.model.conditions import node_conditions
from holdfast.model.health import Fault, Finding, Remedy, Severity
from holdfast.model.names import Condition, Reason
from holdfast.model.report import NodeReport

NOW = datetime(2025, 11, 20, 12, 0, tzinfo=UTC)
FAULT = Fault(
    family="xid",
    condition=Condition.NVIDIA_TERMINATE,
    reason=Reason.XID_REPLACE,
    severity=Severity.FATAL,
    remedy=Remedy.REPLACE,
    message="Xid 74",
    since=NOW,
    device="PCI:0000:b9:00",
)
NOTICE = Finding(
    family="agent",
    condition=Condition.SOFTWARE,
    reason=Reason.DETECTOR_FAILED,
    severity=Severity.WARNING,
    remedy=Remedy.NONE,
    message="it failed",
    observed_at=NOW,
    device='a"b\\c\nd',
)
BLANK = NodeReport(node="n1", boot_id="b1", sequence=1, reported_at=NOW)


class Story:
    """Metrics that are shown one report after the other."""

    def __init__(self) -> None:
        self.metrics = AgentMetrics("n1", [Reason.XID_REPLACE, Reason.XID_RESET])
        self.before: NodeReport | None = None

    def tell(
        self, *faults: Fault, notices: tuple[Finding, ...] = (), boot_id: str = "b1"
    ) -> list[str]:
        known = self.before.conditions if self.before is not None else ()
        report = replace(
            BLANK,
            boot_id=boot_id,
            faults=faults,
            notices=notices,
            conditions=node_conditions(known, faults, NOW),
        )
        self.metrics.changed(self.before, report)
        self.before = report
        return self.metrics.text().splitlines()


TERMINATE = 'reason="NvidiaGpuXidErrorPendingReplacement",type="NvidiaErrorTerminate"'
COUNTER = 'problem_counter{reason="NvidiaGpuXidErrorPendingReplacement"}'


def test_before_the_first_report_nobody_knows_that_there_is_no_fault() -> None:
    text = AgentMetrics("node-1", ()).text()

    assert "holdfast_agent_faults 0" not in text


def test_a_healthy_node_has_its_counters_at_zero() -> None:
    lines = Story().tell()

    assert f"{COUNTER} 0" in lines
    assert "holdfast_agent_faults 0" in lines
    gauges = [line for line in lines if line.startswith("problem_gauge{")]
    assert len(gauges) == 5
    assert all(line.endswith(',type="NeuronHealth"} 0') for line in gauges)
    assert f'holdfast_agent_build_info{{node="n1",version="{__version__}"}} 1' in lines


def test_a_problem_that_lasts_is_counted_when_it_begins_and_gauged_while_it_lasts() -> None:
    story = Story()
    story.tell()

    first = story.tell(FAULT)
    again = story.tell(replace(FAULT, count=2))
    cleared = story.tell()
    back = story.tell(FAULT)

    assert {f"{COUNTER} 1", f"problem_gauge{{{TERMINATE}}} 1"} <= set(first)
    assert f"{COUNTER} 1" in again
    assert {f"{COUNTER} 1", f"problem_gauge{{{TERMINATE}}} 0"} <= set(cleared)
    assert {f"{COUNTER} 2", f"problem_gauge{{{TERMINATE}}} 1"} <= set(back)


def test_what_an_earlier_agent_of_this_boot_has_reported_is_not_counted_again() -> None:
    story = Story()
    story.tell(FAULT)
    story.metrics = AgentMetrics("n1", [Reason.XID_REPLACE])

    assert {f"{COUNTER} 0", f"problem_gauge{{{TERMINATE}}} 1"} <= set(story.tell(FAULT))
    assert f"{COUNTER} 1" in story.tell(FAULT, boot_id="b2")


def test_a_problem_that_passes_is_counted_each_time_it_is_reported() -> None:
    story = Story()
    story.tell(notices=(NOTICE,))
    story.tell(notices=(NOTICE,))
    lines = story.tell(notices=(replace(NOTICE, observed_at=NOW + timedelta(seconds=1)),))

    assert 'problem_counter{reason="DetectorFailed"} 2' in lines


def test_faults_are_gauged_by_what_they_call_for() -> None:
    lines = Story().tell(FAULT, replace(FAULT, device="PCI:0000:10:00"))

    labels = 'condition="NvidiaErrorTerminate",reason="NvidiaGpuXidErrorPendingReplacement"'
    assert f'holdfast_agent_faults{{{labels},remedy="replace"}} 2' in lines


def test_the_value_of_a_label_is_escaped() -> None:
    lines = Story().tell(notices=(NOTICE,))

    label = r'device="a\"b\\c\nd"'
    assert f"holdfast_agent_detector_failures_total{{{label}}} 1" in lines


def test_heartbeats_reports_and_lines_are_counted() -> None:
    class Host:
        def boot_id(self) -> str:
            return "b1"

        def read(self) -> Readings:
            return Readings(kernel_log=(LogLine(message="x", observed_at=NOW),) * 3)

        def commit(self) -> None:
            committed.append(1)

    committed: list[int] = []
    story = Story()
    host = CountedHost(Host(), story.metrics)

    assert len(host.read().kernel_log) == 3
    host.read()
    host.commit()
    story.metrics.heartbeat_sent()
    story.tell()
    lines = story.tell()

    assert (host.boot_id(), committed) == ("b1", [1])
    assert {
        "holdfast_agent_heartbeats_total 1",
        "holdfast_agent_reports_total 2",
        "holdfast_agent_log_lines_total 6",
    } <= set(lines)


def test_every_metric_has_a_type_and_a_line_of_help_and_the_process_is_measured() -> None:
    lines = Story().tell(FAULT, notices=(NOTICE,))

    names = {line.partition(" ")[0].partition("{")[0] for line in lines if line[0] != "#"}
    for name in names:
        assert sum(line.startswith(f"# TYPE {name} ") for line in lines) == 1
        assert sum(line.startswith(f"# HELP {name} ") for line in lines) == 1
    values = dict(line.split(" ") for line in lines if line.startswith("process_"))
    assert 1 << 20 < float(values["process_resident_memory_bytes"]) < 1 << 34
    assert 0 < float(values["process_cpu_seconds_total"]) < 10_000
