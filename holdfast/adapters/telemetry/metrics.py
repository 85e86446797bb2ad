"""Metrics of an agent, in Prometheus text format."""

import threading
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from holdfast import __version__
from holdfast.adapters.telemetry.exposition import Samples, family, labels, process_families
from holdfast.detectors.contract import Readings
from holdfast.model.conditions import ConditionStatus
from holdfast.model.health import Finding
from holdfast.model.names import Condition, Reason
from holdfast.model.report import NodeReport
from holdfast.ports.host import Host

_NEURON: Final = tuple(
    (Condition.NEURON, reason)
    for reason in (
        Reason.NEURON_SRAM,
        Reason.NEURON_NC,
        Reason.NEURON_HBM,
        Reason.NEURON_DMA,
        Reason.NEURON_HANG,
    )
)
"""Reasons that the Neuron problem detector exports from its start."""


class AgentMetrics:
    """A ``ReportObserver`` that keeps metrics; ``text`` may be called from another thread.

    ``problem_counter`` and ``problem_gauge`` are node-problem-detector's, names, labels and
    meaning: a problem that lasts is counted when it begins, one that passes each time it is
    reported. The rest is Holdfast's own.
    """

    def __init__(
        self, node: str, reasons: Collection[str], machine: Mapping[str, str] | None = None
    ) -> None:
        """Count for ``node``; each of ``reasons`` is counted from 0 on.

        ``machine`` holds labels that identify the machine, such as ``instance_id``.
        """
        self._machine = dict(machine or {})
        self._lock = threading.Lock()
        self._node = node
        self._problems: Counter[str] = Counter(dict.fromkeys(reasons, 0))
        self._states: dict[tuple[str, str], bool] = dict.fromkeys(_NEURON, False)
        self._report: NodeReport | None = None
        self._failures: Counter[str] = Counter()
        self._heartbeats = self._reports = self._lines = 0

    def changed(self, before: NodeReport | None, report: NodeReport) -> None:
        """See ``ReportObserver.changed``."""
        last = before if before is not None and before.boot_id == report.boot_id else None
        with self._lock:
            self._report = report
            self._reports += 1
            self._count(last, report)
            for state in self._states:
                self._states[state] = False
            for condition in report.conditions:
                if condition.status is ConditionStatus.TRUE:
                    self._states[condition.type, condition.reason] = True

    def heartbeat_sent(self) -> None:
        """See ``ReportObserver.heartbeat_sent``."""
        with self._lock:
            self._heartbeats += 1

    def count_lines(self, lines: int) -> None:
        """Add to the count of log lines read."""
        with self._lock:
            self._lines += lines

    def text(self) -> str:
        """Current values of all metrics."""
        with self._lock:
            families = [*self._families(), *process_families()]
        return "".join(families)

    def _count(self, last: NodeReport | None, report: NodeReport) -> None:
        reported = {fault.key for fault in last.faults} if last is not None else set()
        self._problems.update(fault.reason for fault in report.faults if fault.key not in reported)
        noticed = set(last.notices) if last is not None else set()
        new_notices = [notice for notice in report.notices if notice not in noticed]
        self._problems.update(notice.reason for notice in new_notices)
        self._failures.update(_failed(new_notices))

    def _families(self) -> Iterator[str]:
        def one(value: float) -> Samples:
            return {(): value}

        report = self._report
        faults = report.faults if report is not None else ()
        reported = Counter(
            labels(condition=f.condition, reason=f.reason, remedy=f.remedy) for f in faults
        )
        # fmt: off
        yield family("problem_counter", "counter", "Problems by reason.",
            {labels(reason=reason): n for reason, n in self._problems.items()})
        yield family("problem_gauge", "gauge", "1 while the condition is True for the reason.",
            {labels(reason=reason, type=kind): on for (kind, reason), on in self._states.items()})
        yield family("holdfast_agent_build_info", "gauge", "Always 1.",
            {labels(version=__version__, node=self._node): 1})
        if self._machine:
            yield family("holdfast_agent_machine_info", "gauge", "Always 1.",
                {labels(**self._machine): 1})
        yield family("holdfast_agent_faults", "gauge", "Current faults.",
            reported or (one(0) if report is not None else {}))  # nothing is known before it
        yield family("holdfast_agent_drill_active", "gauge",
            "1 while log lines that can be forged lead to repairs.",
            one(report is not None and report.drill_until is not None))
        yield family("holdfast_agent_heartbeats_total", "counter", "Heartbeats sent.",
            one(self._heartbeats))
        yield family("holdfast_agent_reports_total", "counter", "Reports with a change.",
            one(self._reports))
        yield family("holdfast_agent_log_lines_total", "counter",
            "Log lines read that may concern a detector.", one(self._lines))
        yield family("holdfast_agent_detector_failures_total", "counter",
            "Failures of detectors and of what they read.",
            {labels(device=device): n for device, n in self._failures.items()})
        # fmt: on


class CountedHost:
    """A ``Host`` that counts the log lines read."""

    def __init__(self, host: Host, metrics: AgentMetrics) -> None:
        """Count what is read from ``host``."""
        self._host = host
        self._metrics = metrics

    def boot_id(self) -> str:
        """See ``Host.boot_id``."""
        return self._host.boot_id()

    def read(self) -> Readings:
        """See ``Host.read``."""
        readings = self._host.read()
        self._metrics.count_lines(len(readings.kernel_log))
        return readings

    def commit(self) -> None:
        """See ``Host.commit``."""
        self._host.commit()


_FAILURES: Final = frozenset({Reason.DETECTOR_FAILED, Reason.SOURCE_FAILED})


def _failed(notices: Iterable[Finding]) -> list[str]:
    return [notice.device for notice in notices if notice.reason in _FAILURES]
