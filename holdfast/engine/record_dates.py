"""Correction of records that were written before the clock was set."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, Generic

from holdfast.decisions.clock_steps import (
    CONFIRMED_AFTER,
    TOLERANCE,
    Record,
    dated_back,
    dated_forward,
    is_ahead,
    lead,
)
from holdfast.engine.clock_offset import ClockOffset
from holdfast.engine.repeats import AFTER_ERROR, RepeatLimiter
from holdfast.model.errors import BackendError
from holdfast.model.events import TimesCorrected
from holdfast.ports.clock import Clock
from holdfast.ports.leadership import Leadership

AT_ONCE: Final = 20
"""Maximum number of records corrected in one round, so that they delay nothing else."""

_NEVER: Final = datetime.max.replace(tzinfo=UTC)


class RecordDates(Generic[Record]):
    """Corrects the times of records after the clock was set.

    Args:
        put: stores a corrected record.
        clock: the clock by which records are written.
        leadership: only the leader corrects.
        repeats: gets the events.

    """

    def __init__(
        self,
        put: Callable[[str, Record], None],
        clock: Clock,
        leadership: Leadership,
        repeats: RepeatLimiter,
    ) -> None:
        self._put: Callable[[str, Record], None] = put
        self._leadership = leadership
        self._repeats = repeats
        self._seen: dict[str, datetime] = {}  # since when each record is in the future
        self._clock = clock
        self._offset = ClockOffset(clock)
        self._forward = timedelta(0)  # by how much times are to be moved

    def correct(self, records: Mapping[str, Record], now: datetime) -> datetime | None:
        """Correct what is due.

        Args:
            records: all records, by the name of their node or job.
            now: the present time.

        Returns:
            The time by which the next round must run; None if this round must end, because timeouts
            of the records that were read would pass early.

        Raises:
            StorageFull: nothing can be recorded, so nothing may be done.
            StateDamaged: nothing can be recorded until a restart has restored the state.

        """
        return None if self._moved_forward(records) else self._dated_back(records, now)

    def _moved_forward(self, records: Mapping[str, Record]) -> bool:
        """Delay timeouts by as much as the clock was set forward since the last call.

        A record that cannot be stored is not tried again: others must not wait for it.
        """
        now, step = self._clock.now(), self._offset.step()
        self._forward += step if step > TOLERANCE else timedelta(0)
        if not self._forward:
            return False
        later = {name: dated_forward(one, self._forward, now) for name, one in records.items()}
        changed = {name: record for name, record in later.items() if record != records[name]}
        for name, record in changed.items():
            if not self._leadership.is_held():
                break
            self._store(name, record, -self._forward, now)
        self._forward = timedelta(0)  # not before all are stored, or the disk is full
        return bool(changed)

    def _dated_back(self, records: Mapping[str, Record], now: datetime) -> datetime:
        """Date back what has been in the future for ``CONFIRMED_AFTER``."""
        self._seen = {
            name: min(self._seen.get(name, now), now)
            for name, record in records.items()
            if is_ahead(record, now)
        }
        due = [name for name, since in self._seen.items() if now >= since + CONFIRMED_AFTER]
        for name in due[:AT_ONCE]:
            if not self._leadership.is_held():
                return now + AFTER_ERROR
            del self._seen[name]  # one that cannot be stored is tried after the others
            self._store(name, dated_back(records[name], now), lead(records[name], now), now)
        if due:
            return now
        return min((at + CONFIRMED_AFTER for at in self._seen.values()), default=_NEVER)

    def _store(self, name: str, record: Record, ahead: timedelta, now: datetime) -> None:
        try:
            self._put(name, record)
        except BackendError as error:
            self._repeats.call_failed(f"correcting the times of {name}", error, now)
        else:
            self._repeats.emit(TimesCorrected(what=name, ahead=ahead), now)
