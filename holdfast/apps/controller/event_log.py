"""What happens, on standard output, a line each."""

import json
import sys
from datetime import UTC, datetime, timedelta
from typing import Final

from holdfast.apps.controller.config import LogFormat
from holdfast.engine.wording import log_line
from holdfast.kit.serial import to_plain
from holdfast.model.events import CallFailed, Event
from holdfast.ports.clock import Clock

_LIMIT: Final = 4096
"""Characters of a line of text; what others write into their objects can be long."""


_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)

_REPEAT_AFTER: Final = timedelta(minutes=1)
"""A call that fails every second is told as often as that."""


class EventLog:
    """An ``EventSink``. What cannot be written is dropped: nobody reads it any more."""

    def __init__(self, log: LogFormat, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._failed: dict[str, datetime] = {}
        """What was tried in vain, and when that was told."""

    def emit(self, event: Event) -> None:
        """See ``EventSink.emit``."""
        at = self._clock.now()
        if isinstance(event, CallFailed):
            if at - self._failed.get(event.what, _LONG_AGO) < _REPEAT_AFTER:
                return
            self._failed = {
                what: reported
                for what, reported in self._failed.items()
                if at - reported < _REPEAT_AFTER
            }
            self._failed[event.what] = at
        if self._log is LogFormat.JSON:
            line = json.dumps({"at": to_plain(at), "event": event.name, **to_plain(event)})
        else:
            words = " ".join(log_line(event).split())
            line = f"{at:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + f"Z {words}"[:_LIMIT]
        try:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
        except OSError:
            pass
