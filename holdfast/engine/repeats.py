"""Events that a loop would emit in every round for as long as the same holds."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from holdfast.model.events import CallFailed, Event, NodeCheckWaits, RepairDeferred
from holdfast.ports.events import EventSink

Repeated = CallFailed | RepairDeferred | NodeCheckWaits

_AFTER: Final[Mapping[type[Event], timedelta]] = {
    CallFailed: timedelta(minutes=1),
    RepairDeferred: timedelta(hours=1),
    NodeCheckWaits: timedelta(hours=1),
}
"""Pause until the same event is emitted once more. Calls are repeated each second; a repair or a
check may wait for days, which is not to be forgotten."""

_KEPT: Final = 2 * max(_AFTER.values())
"""What was not emitted for so long is news."""

_NUMBER: Final = re.compile(r"\d+")


@dataclass(slots=True)
class _Seen:
    emitted_at: datetime
    times: int = 1
    """Those since it was emitted that were not."""


class Repeats:
    """Emits an event when it is news, and once more after a pause, with the number of repetitions.

    Two events of one kind about one subject are the same if they differ in numbers only, such as
    those of ports and seconds.
    """

    def __init__(self, events: EventSink) -> None:
        self._events = events
        self._seen: dict[tuple[str, str, str], _Seen] = {}

    def emit(self, event: Repeated, now: datetime) -> None:
        """Emit ``event``, or count it."""
        subject, text = _subject(event)
        key = (event.name, subject, _NUMBER.sub("", text))
        seen = self._seen.get(key)
        if seen is not None and now - seen.emitted_at < _AFTER[type(event)]:
            seen.times += 1
            return
        self._events.emit(event if seen is None else replace(event, times=seen.times))
        self._seen = {
            known: one for known, one in self._seen.items() if now - one.emitted_at < _KEPT
        }
        self._seen[key] = _Seen(emitted_at=now)

    def keep_nodes(self, nodes: Collection[str]) -> None:
        """Forget what waited on other nodes than these: the next time it is news."""
        self._seen = {
            key: seen
            for key, seen in self._seen.items()
            if key[0] == CallFailed.name or key[1] in nodes
        }


def _subject(event: Repeated) -> tuple[str, str]:
    match event:
        case CallFailed(what=what, error=error):
            return what, error
        case RepairDeferred(node=node, why=why):
            return node, why
        case NodeCheckWaits(node=node, why=why):  # for whatever: jobs come and go
            return node, why.partition(" ")[0]
