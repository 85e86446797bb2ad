"""Events of drills, for platforms without Events of the agent."""

from datetime import datetime

from holdfast.model.events import NodeDrillActive
from holdfast.model.nodes import ClusterView
from holdfast.ports.events import EventSink


class DrillReports:
    """Reports each active drill once, and again after a restart."""

    def __init__(self, events: EventSink) -> None:
        self._events = events
        self._reported: dict[str, datetime] = {}

    def report(self, view: ClusterView, now: datetime) -> None:
        """Emit an event for each node whose drill is active ``now`` and was not reported."""
        active = {
            node.name: node.drill_until
            for node in view.nodes
            if node.drill_until is not None and now < node.drill_until
        }
        for name, until in active.items():
            if self._reported.get(name) != until:
                self._events.emit(NodeDrillActive(node=name, until=until))
        self._reported = active
