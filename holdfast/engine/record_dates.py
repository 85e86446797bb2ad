"""Correction of records that were written while the clock was ahead."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, Generic

from holdfast.decisions.clock_steps import CONFIRMED_AFTER, Record, dated_back, is_ahead, lead
from holdfast.engine.repeats import AFTER_ERROR, RepeatLimiter
from holdfast.model.errors import BackendError
from holdfast.model.events import TimesCorrected
from holdfast.ports.leadership import Leadership

AT_ONCE: Final = 20
"""Maximum number of records corrected in one round, so that they delay nothing else."""

_NEVER: Final = datetime.max.replace(tzinfo=UTC)


class RecordDates(Generic[Record]):
    """Dates records back that have been in the future for ``CONFIRMED_AFTER``."""

    def __init__(
        self, put: Callable[[str, Record], None], leadership: Leadership, repeats: RepeatLimiter
    ) -> None:
        """Store corrected records by ``put``; ``repeats`` gets the events."""
        self._put: Callable[[str, Record], None] = put
        self._leadership = leadership
        self._repeats = repeats
        self._seen: dict[str, datetime] = {}  # since when each record is in the future

    def correct(self, records: Mapping[str, Record], now: datetime) -> datetime:
        """Correct what is due; returns the time by which the next round must run.

        Args:
            records: all records, by the name of their node or job.
            now: the present time.

        Raises:
            StorageFull: nothing can be recorded, so nothing may be done.
            StateDamaged: nothing can be recorded until a restart has restored the state.

        """
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
            try:
                self._put(name, dated_back(records[name], now))
            except BackendError as error:
                self._repeats.call_failed(f"correcting the times of {name}", error, now)
            else:
                ahead = lead(records[name], now)
                self._repeats.emit(TimesCorrected(what=name, ahead=ahead), now)
        if due:
            return now
        return min((at + CONFIRMED_AFTER for at in self._seen.values()), default=_NEVER)
