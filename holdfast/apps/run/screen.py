"""Output of a run while it is active."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from holdfast.apps.run.nonblocking_output import NonblockingOutput
from holdfast.engine.wording import log_line
from holdfast.kit.serial import to_plain
from holdfast.model.events import Event
from holdfast.model.job_views import JobView
from holdfast.model.nodes import ClusterView


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSnapshot:
    """State of the run at one moment."""

    now: datetime
    cluster: ClusterView
    job: JobView


class Screen(Protocol):
    """Shows the output of a run, and decides itself how often to repaint."""

    @property
    def is_behind(self) -> bool:
        """Whether output of ranks should be shown later, as earlier output is still unwritten."""
        ...

    def event(self, at: datetime, event: Event) -> None:
        """Show an event."""
        ...

    def log(self, rank: int, line: str) -> None:
        """Show a line that a rank printed."""
        ...

    def moment(self, read_snapshot: Callable[[], RunSnapshot]) -> None:
        """Update after a change, or every half second; ``look`` returns the current state."""
        ...

    def close(self) -> None:
        """Close the output. Closing twice has no further effect."""
        ...


class PlainScreen:
    """Prints lines, for files, pipes and logs."""

    def __init__(self, out: NonblockingOutput, started_at: datetime) -> None:
        self._out = out
        self._started_at = started_at

    @property
    def is_behind(self) -> bool:
        """See ``Screen.is_behind``."""
        return self._out.is_behind

    def event(self, at: datetime, event: Event) -> None:
        """See ``Screen.event``."""
        seconds = (at - self._started_at).total_seconds()
        self._print(f"[{seconds:7.2f}s] {log_line(event)}")

    def log(self, rank: int, line: str) -> None:
        """See ``Screen.log``."""
        self._print(f"rank {rank} | {line}")

    def moment(self, read_snapshot: Callable[[], RunSnapshot]) -> None:
        """See ``Screen.moment``: only events are printed."""

    def close(self) -> None:
        """See ``Screen.close``."""
        self._out.finish()

    def _print(self, line: str) -> None:
        self._out.write(line + "\n")


class JsonScreen:
    """Prints one JSON object per line, for programs."""

    def __init__(self, out: NonblockingOutput) -> None:
        self._out = out

    @property
    def is_behind(self) -> bool:
        """See ``Screen.is_behind``."""
        return self._out.is_behind

    def event(self, at: datetime, event: Event) -> None:
        """See ``Screen.event``."""
        self._print({"at": to_plain(at), "event": event.name, **to_plain(event)})

    def log(self, rank: int, line: str) -> None:
        """See ``Screen.log``."""
        self._print({"event": "job.log", "rank": rank, "line": line})

    def moment(self, read_snapshot: Callable[[], RunSnapshot]) -> None:
        """See ``Screen.moment``: only events are printed."""

    def close(self) -> None:
        """See ``Screen.close``."""
        self._out.finish()

    def _print(self, record: object) -> None:
        self._out.write(json.dumps(record) + "\n")
