"""Reads kernel messages from the systemd journal with ``journalctl -o json``.

The format is the Journal JSON Format (systemd.io): one object per line, numbers as strings, a field
that is not valid UTF-8 as an array of bytes, one that is too large as ``null``, and one with
several values as an array of them.
"""

import json
import select
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from holdfast.adapters.host.commands import run_command
from holdfast.adapters.host.log_file import Position
from holdfast.adapters.host.stream import CommandStream
from holdfast.detectors.contract import LogLine
from holdfast.detectors.kernel_log import KERN, USER, kernel_line
from holdfast.detectors.line_trust import record_origin
from holdfast.model.errors import BackendError

NAME: Final = "journald"

TIMEOUT: Final = timedelta(seconds=30)
"""Timeout for reading the entries that the journal already contains."""

_EMPTY: Final = (
    "the journal contains no kernel message of this boot: journald may not read or keep them, "
    "or it is not the journal of this machine"
)
"""Every kernel logs messages at boot, so an empty journal means that they are not readable."""

_FIELDS: Final = "MESSAGE,SYSLOG_FACILITY"
_FACILITIES: Final = {"0": KERN, "1": USER, None: None}
"""Facility by ``SYSLOG_FACILITY``: the kernel, or a process that wrote to /dev/kmsg.
journald sets the field of each record of the kernel transport; without it the writer is unknown."""


class Journal:
    """Follows the kernel messages of this boot."""

    def __init__(
        self, argv: Sequence[str], keywords: Iterable[str], position: Position | None
    ) -> None:
        """Follow the output of ``argv``.

        Args:
            argv: ``journalctl`` with the options that select the journal.
            keywords: only messages that contain one of these keywords are returned.
            position: position of the previous agent of this boot; None if there was none.

        """
        self._argv = argv
        self._keywords = tuple(keywords)
        self._cursor = str(position["cursor"]) if position else ""
        self._stream = CommandStream(self._follow)
        self._deadline = time.monotonic() + TIMEOUT.total_seconds()
        self._error = ""
        self._last = self._last_cursor()

    def fileno(self) -> int | None:
        """Return the descriptor that is readable when a message arrives; None while not running."""
        return self._stream.fileno()

    @property
    def error(self) -> str:
        """Why the journal cannot be read at present; empty if it can."""
        return self._stream.error or ("" if self._cursor or self._last else _EMPTY)

    @property
    def position(self) -> Position:
        """Cursor of the last message that was read."""
        return {"cursor": self._cursor} if self._cursor else {}

    def read(self, now: datetime) -> list[LogLine]:
        """Return the messages since the last call, a bounded number; empty when there are none.

        Waits for the messages that the journal contained at creation, not for later ones.
        """
        lines: list[LogLine] = []
        while not lines:
            read = self._stream.read()
            for text in read:
                lines += self._message(text, now)
            if not read and not self._waits():
                break
        return lines

    def close(self) -> None:
        """Stop ``journalctl``."""
        self._stream.close()

    def _command(self, *options: str) -> list[str]:
        return [
            *(*self._argv, "--quiet", "--no-pager", "--dmesg", "--boot", "--all"),
            *("--output=json", f"--output-fields={_FIELDS}", *options),
        ]

    def _follow(self) -> list[str]:
        after = [f"--after-cursor={self._cursor}"] if self._cursor else []
        return self._command("--follow", "--no-tail", *after)

    def _last_cursor(self) -> str:
        """Return the cursor of the newest message; empty if there is none or it is unknown."""
        try:
            text = run_command(self._command("--lines=1"), timeout=TIMEOUT).stdout
        except BackendError:
            return ""  # the stream reports the error
        return str((_record(text.encode()) or {}).get("__CURSOR", ""))

    def _waits(self) -> bool:
        """Wait for more initial messages. Returns whether more may follow."""
        left = self._deadline - time.monotonic()
        source = self._stream.fileno()
        if self._last in ("", self._cursor) or source is None or left <= 0:
            self._last = ""
            return False
        select.select([source], [], [], left)
        return True

    def _message(self, text: bytes, now: datetime) -> list[LogLine]:
        record = _record(text)
        if record is None:
            return []
        self._cursor = str(record.get("__CURSOR") or self._cursor)
        if self._cursor == self._last:
            self._last = ""
        message = _text(record.get("MESSAGE"))
        facility = record.get("SYSLOG_FACILITY")
        if (
            not isinstance(facility, str | None)
            or facility not in _FACILITIES
            or not self._is_marked(message)
        ):
            return []
        line = kernel_line(message, now)
        if line is None:
            return []
        return [
            LogLine(
                message=line.message,
                observed_at=min(_moment(record) or now, now),
                origin=record_origin(_FACILITIES[facility]),
            )
        ]

    def _is_marked(self, message: str) -> bool:
        return any(keyword in message for keyword in self._keywords)


def _record(text: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _text(value: object) -> str:
    """Return a journal field as text; of several values, the first."""
    match value:
        case str():
            return value.replace("\0", "")
        case [int(), *_]:
            numbers = [one for one in value if isinstance(one, int) and 0 < one < 256]
            return bytes(numbers).decode("utf-8", errors="replace")
        case [str() | list() as first, *_]:
            return _text(first)
        case _:
            return ""


def _moment(record: dict[str, Any]) -> datetime | None:
    stamp = str(record.get("__REALTIME_TIMESTAMP", ""))
    if not (stamp.isascii() and stamp.isdigit()) or len(stamp) > 17:  # 17 digits: the year 5138
        return None
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(stamp))
