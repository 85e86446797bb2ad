"""Correction of records that were written while the clock was ahead."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, Generic

from holdfast.decisions.clock_steps import CONFIRMED_AFTER, Record, dated_back, is_ahead
from holdfast.engine.repeats import AFTER_ERROR, RepeatLimiter
from holdfast.model.errors import BackendError
from holdfast.ports.leadership import Leadership

_NEVER: Final = datetime.max.replace(tzinfo=UTC)


class RecordDates(Generic[Record]):
    """Dates records back that have been in the future for ``CONFIRMED_AFTER``."""

    def __init__(
        self, put: Callable[[str, Record], None], leadership: Leadership, repeats: RepeatLimiter
    ) -> None:
        """Store corrected records by ``put``; ``repeats`` gets its errors."""
        self._put: Callable[[str, Record], None] = put
        self._leadership = leadership
        self._repeats = repeats
        self._seen: dict[str, datetime] = {}  # since when each record is in the future

    def correct(self, records: Mapping[str, Record], now: datetime) -> datetime:
        """Return when this needs the next round; ``now`` if records have changed.

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
        if due and not self._leadership.is_held():
            return now + AFTER_ERROR
        if due:
            return self._put_all({name: dated_back(records[name], now) for name in due}, now)
        return min((at + CONFIRMED_AFTER for at in self._seen.values()), default=_NEVER)

    def _put_all(self, corrected: Mapping[str, Record], now: datetime) -> datetime:
        for name, record in corrected.items():
            try:
                self._put(name, record)
            except BackendError as error:
                return self._repeats.call_failed(f"correcting the times of {name}", error, now)
            del self._seen[name]
        return now
