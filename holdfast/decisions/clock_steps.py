"""Records that were written while the clock was ahead.

After it is set back, their times are in the future, and whatever counts from them would wait until
the clock has caught up.
"""

import dataclasses
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from holdfast.model.jobs import JobRecord
from holdfast.model.nodes import NodeRecord, Phase

Record = TypeVar("Record", JobRecord, NodeRecord)

CONFIRMED_AFTER: Final = timedelta(seconds=10)
"""How long a record must stay in the future before it is corrected: a clock that is behind for a
moment must not date records back, as their timeouts would have passed when it is right again."""


def is_ahead(record: JobRecord | NodeRecord, now: datetime) -> bool:
    """Return whether a record counts from a time after ``now``.

    That of a running deep health check does not matter: its start is also its name, so a corrected
    one would be started again beside itself.
    """
    if isinstance(record, JobRecord):
        failed_at = None if record.failure is None else record.failure.at
        return not record.phase.is_final and _any_after((record.phase_since, failed_at), now)
    if record.phase is Phase.CHECKING:
        return False
    repair = record.remediation
    times = () if repair is None else (repair.opened_at, repair.ordered_at)
    counted = (record.phase_since, record.cleared_at, record.agent_silent_since, *times)
    return _any_after(counted, now)


def dated_back(record: Record, now: datetime) -> Record:
    """Return a record that ``is_ahead`` with all times after ``now`` set to ``now``.

    Delays that have not passed, of a backoff or before the next call to a provider, end now.
    """
    return _capped(record, now) if is_ahead(record, now) else record


def _any_after(times: tuple[datetime | None, ...], now: datetime) -> bool:
    return any(at is not None and at > now for at in times)


def _capped(value: Any, now: datetime) -> Any:
    if isinstance(value, datetime):
        return min(value, now)
    if isinstance(value, tuple):
        return tuple(_capped(one, now) for one in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = (field.name for field in dataclasses.fields(value))
        changes = {name: _capped(getattr(value, name), now) for name in names}
        return dataclasses.replace(value, **changes)
    return value
