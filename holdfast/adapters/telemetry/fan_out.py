"""One report to many readers."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from holdfast.model.conditions import node_conditions
from holdfast.model.health import Fault
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

    def __init__(
        self,
        sink: ReportSink,
        observers: Sequence[ReportObserver],
        *,
        is_void: Callable[[Fault], bool] = lambda _: False,
    ) -> None:
        """Publish to ``sink``, which alone is read again after a restart.

        Args:
            sink: keeps the report.
            observers: are shown it.
            is_void: says of a fault in the last report that it counts no longer.

        """
        self._sink = sink
        self._observers = observers
        self._is_void = is_void
        self._shown = sink.last()

    def last(self) -> NodeReport | None:
        """See ``ReportSink.last``; without what counts no longer."""
        report = self._sink.last()
        if report is None:
            return None
        confirmed = tuple(fault for fault in report.faults if not self._is_void(fault))
        void = {suspect.key for suspect in report.suspects if self._is_void(suspect)}
        return replace(
            report,
            faults=confirmed,
            notices=tuple(notice for notice in report.notices if notice.key not in void),
            suspects=tuple(one for one in report.suspects if one.key not in void),
        )

    def publish(self, report: NodeReport) -> None:
        """See ``ReportSink.publish``."""
        before = self._shown
        known = before.conditions if before is not None else ()
        conditions = node_conditions(known, report.faults, report.reported_at)
        merged = replace(report, conditions=conditions)
        for observer in self._observers:
            observer.changed(before, merged)
        self._shown = merged
        self._sink.publish(merged)

    def heartbeat(self, boot_id: str, sequence: int) -> None:
        """See ``ReportSink.heartbeat``."""
        self._sink.heartbeat(boot_id, sequence)
        for observer in self._observers:
            observer.beat()
