"""Publishes each report of the agent to several observers."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from holdfast.model.conditions import node_conditions
from holdfast.model.health import Fault
from holdfast.model.report import NodeReport
from holdfast.ports.report import ReportSink


class ReportObserver(Protocol):
    """Receives the reports of an agent. It never raises and never blocks."""

    def changed(self, before: NodeReport | None, report: NodeReport) -> None:
        """``report`` takes the place of ``before``, which an earlier agent may have published."""
        ...

    def heartbeat_sent(self) -> None:
        """Record a heartbeat of the agent."""
        ...


class FanOut:
    """A ``ReportSink`` that adds the conditions to each report and passes it to observers as well.

    Observers run first: the log lines of a published report exist. They see each report once, also
    when publishing is retried and, once published, when another agent starts.
    """

    def __init__(
        self,
        sink: ReportSink,
        observers: Sequence[ReportObserver],
        *,
        is_discarded: Callable[[Fault], bool] = lambda _: False,
    ) -> None:
        """Publish to ``sink``, which alone is read again after a restart.

        Args:
            sink: stores the report.
            observers: receive each report.
            is_discarded: whether a fault in the last report is to be discarded.

        """
        self._sink = sink
        self._observers = observers
        self._is_discarded = is_discarded
        self._shown = sink.last()

    def last(self) -> NodeReport | None:
        """See ``ReportSink.last``; without discarded faults."""
        report = self._sink.last()
        if report is None:
            return None
        confirmed = tuple(fault for fault in report.faults if not self._is_discarded(fault))
        discarded = {suspect.key for suspect in report.suspects if self._is_discarded(suspect)}
        return replace(
            report,
            faults=confirmed,
            notices=tuple(notice for notice in report.notices if notice.key not in discarded),
            suspects=tuple(one for one in report.suspects if one.key not in discarded),
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
            observer.heartbeat_sent()
