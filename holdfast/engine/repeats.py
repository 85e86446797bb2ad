"""Rate limit of events that a loop would emit in every round while their cause lasts."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from holdfast.model.errors import BackendError, StateDamaged, StorageFull
from holdfast.model.events import (
    CallFailed,
    Event,
    NodeCheckWaits,
    RepairDeferred,
    TimesCorrected,
)
from holdfast.ports.events import EventSink

Repeated = CallFailed | RepairDeferred | NodeCheckWaits | TimesCorrected

_AFTER: Final[Mapping[type[Event], timedelta]] = {
    CallFailed: timedelta(minutes=1),
    TimesCorrected: timedelta(minutes=1),
    RepairDeferred: timedelta(hours=1),
    NodeCheckWaits: timedelta(hours=1),
}
"""Delay until the same event is emitted again. Calls are retried each second; a repair or a check
may wait for days, and stays visible by hourly events."""

AFTER_ERROR: Final = timedelta(seconds=1)
"""Delay after a backend failed, and the minimum before an order is repeated."""

_RETENTION: Final = 2 * max(_AFTER.values())
"""Time without emission after which an event counts as new."""

_NUMBER: Final = re.compile(r"\d+")


@dataclass(slots=True)
class _Seen:
    emitted_at: datetime
    times: int = 1
    """Number of occurrences since the last emission."""


class RepeatLimiter:
    """Emits an event when it is new, and again after a delay, with the number of repetitions.

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
        # An emission in the future was dated by a clock that was ahead: it suppresses nothing.
        if seen is not None and timedelta(0) <= now - seen.emitted_at < _AFTER[type(event)]:
            seen.times += 1
            return
        self._events.emit(event if seen is None else replace(event, times=seen.times))
        self._seen = {
            known: one for known, one in self._seen.items() if now - one.emitted_at < _RETENTION
        }
        self._seen[key] = _Seen(emitted_at=now)

    def call_failed(self, what: str, error: BackendError, now: datetime) -> datetime:
        """Emit that ``what`` failed, or count it; return when to retry.

        Raises:
            StateDamaged, StorageFull: the error, if it holds for all calls.

        """
        if isinstance(error, StorageFull | StateDamaged):
            raise error
        self.emit(CallFailed(what=what, error=str(error)), now)
        return now + AFTER_ERROR

    def keep_nodes(self, nodes: Collection[str]) -> None:
        """Forget events about other nodes: they are new the next time."""
        self._seen = {
            key: seen
            for key, seen in self._seen.items()
            if key[0] in (CallFailed.name, TimesCorrected.name) or key[1] in nodes
        }


def _subject(event: Repeated) -> tuple[str, str]:
    match event:
        case CallFailed(what=what, error=error):
            return what, error
        case TimesCorrected(what=what):
            return what, ""
        case RepairDeferred(node=node, why=why):
            return node, why
        case NodeCheckWaits(node=node, why=why):  # whatever the job: jobs come and go
            return node, why.partition(" ")[0]
