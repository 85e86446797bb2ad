"""Selects the notices for people: each problem once, until it is resolved."""

from collections import Counter
from collections.abc import Collection

from holdfast.decisions.alert_rules import REFUSALS
from holdfast.model.events import (
    Event,
    JobFinished,
    NodeReleased,
    NodeReplaced,
    NodeVanished,
    RepairOrdered,
    RepairOverdue,
    RepairPostponed,
)
from holdfast.model.jobs import JobPhase

_Key = tuple[str, ...]


class Attention:
    """Tracks the sent notices in memory; after a restart a notice may be sent once more."""

    def __init__(self, names: Collection[str]) -> None:
        """Select events with these names."""
        self._names = frozenset(names)
        self._times: Counter[_Key] = Counter()

    def wants(self, event: Event) -> bool:
        """Whether to notify people of an event; call it with every event, in order."""
        self._forget(event)
        if event.name not in self._names:
            return False
        match event:
            case JobFinished():
                return event.outcome == JobPhase.FAILED
            case RepairPostponed():
                return self._count(event, event.node, event.remedy) == REFUSALS
            case RepairOverdue():
                return self._count(event, event.node, event.remedy) == 1
        return True

    def _count(self, event: Event, *key: str) -> int:
        self._times[event.name, *key] += 1
        return self._times[event.name, *key]

    def _forget(self, event: Event) -> None:
        match event:
            case RepairOrdered(node=node):
                over = {RepairPostponed.name}
            case NodeReleased(node=node) | NodeReplaced(node=node) | NodeVanished(node=node):
                over = {RepairPostponed.name, RepairOverdue.name}
            case _:
                return
        for key in [key for key in self._times if key[0] in over and key[1] == node]:
            del self._times[key]
