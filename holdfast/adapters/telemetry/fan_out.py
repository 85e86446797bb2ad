"""One report to many readers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from holdfast.model.conditions import node_conditions
from holdfast.model.report import NodeReport
from holdfast.ports.report import ReportSink


class ReportObserver(Protocol):
    """Takes part in the word of an agent. It never raises and never keeps the agent waiting."""

    def changed(self, before: NodeReport | None, report: NodeReport) -> None:
        """``report`` takes the place of ``before``, which an earlier agent may have published."""
        ...

    def beat(self) -> None:
        """The agent lives."""
        ...


class FanOut:
    """A ``ReportSink`` that adds the conditions to each report and shows it to observers, too.

    The observers come first: whoever has seen a report published can rely on its log lines. What
    they were shown is not shown again, neither when publishing fails and is tried again nor, once
    published, by an agent that starts later.
    """

    def __init__(self, sink: ReportSink, observers: Sequence[ReportObserver]) -> None:
        """Publish to ``sink``, which alone is read again after a restart."""
        self._sink = sink
        self._observers = observers
        self._shown = sink.last()

    def last(self) -> NodeReport | None:
        """See ``ReportSink.last``."""
        return self._sink.last()

    def publish(self, report: NodeReport) -> None:
        """See ``ReportSink.publish``."""
        before = self._shown
        known = before.conditions if before is not None else ()
        conditions = node_conditions(known, report.faults, report.reported_at)
        whole = replace(report, conditions=conditions)
        for observer in self._observers:
            observer.changed(before, whole)
        self._shown = whole
        self._sink.publish(whole)

    def heartbeat(self, boot_id: str, sequence: int) -> None:
        """See ``ReportSink.heartbeat``."""
        self._sink.heartbeat(boot_id, sequence)
        for observer in self._observers:
            observer.beat()
