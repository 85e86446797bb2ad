"""Event log on standard output, one line per event."""

import json
import sys
from datetime import datetime, timedelta
from typing import Final

from holdfast.apps.controller.config import LogFormat
from holdfast.engine.wording import log_line
from holdfast.kit.serial import to_plain
from holdfast.model.events import CallFailed, Event
from holdfast.ports.clock import Clock

_LIMIT: Final = 4096
"""Maximum characters of a text line; fields of objects that others write can be long."""


_REPEAT_AFTER: Final = timedelta(minutes=1)
"""Minimum interval between two lines about the same failing call."""


class EventLog:
    """An ``EventSink``. Drops lines that cannot be written, as their reader is gone."""

    def __init__(self, log: LogFormat, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._failed: dict[str, datetime] = {}
        """``failed call -> time of its last log line``."""

    def emit(self, event: Event) -> None:
        """See ``EventSink.emit``."""
        at = self._clock.now()
        if isinstance(event, CallFailed):
            self._failed = {
                what: reported
                for what, reported in self._failed.items()
                if timedelta(0) <= at - reported < _REPEAT_AFTER  # the clock may be set back
            }
            if event.what in self._failed:
                return
            self._failed[event.what] = at
        if self._log is LogFormat.JSON:
            line = json.dumps({"at": to_plain(at), "event": event.name, **to_plain(event)})
        else:
            text = " ".join(log_line(event).split())
            line = f"{at:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + f"Z {text}"[:_LIMIT]
        try:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
        except OSError:
            pass
