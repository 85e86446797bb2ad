"""Reads the kernel log from /dev/kmsg or from a file with its records."""

import errno
import os
import re
import stat
import time
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from holdfast.adapters.host.log_file import LogFile, Position
from holdfast.detectors.contract import LogLine
from holdfast.detectors.kernel_log import KernelLog
from holdfast.detectors.line_trust import record_origin

RECORD_BYTES: Final = 16 * 1024
"""Buffer size of one read: the kernel rejects a read with a buffer smaller than the record, which
is at most 8192 bytes (``CONSOLE_EXT_LOG_MAX`` in linux/printk.h)."""

LINES: Final = 1000
"""Maximum number of matching records per read."""

_HEADER: Final = re.compile(rb"[0-9]+,(?P<sequence>[0-9]+),(?P<microseconds>[0-9]+),")


class KmsgDevice:
    """Reads /dev/kmsg, starting at the oldest record that the kernel still has."""

    def __init__(self, fd: int, keywords: Iterable[str], position: Position | None) -> None:
        """Read the non-blocking descriptor ``fd`` of the device, after ``position`` if not None."""
        self._fd = fd
        self._log = KernelLog(keywords)
        self._sequence = position.get("sequence", -1) if position is not None else -1

    def fileno(self) -> int:
        """Return the file descriptor, which is readable when there is a record."""
        return self._fd

    @property
    def position(self) -> Position:
        """Sequence number of the last record that was read."""
        return {"sequence": self._sequence}

    def read(self, now: datetime) -> list[LogLine]:
        """Return the records since the last call, a bounded number; empty when there are none.

        Raises:
            OSError: reading the device failed.

        """
        booted_at = now - timedelta(seconds=time.monotonic())
        lines: list[LogLine] = []
        while len(lines) < LINES and (record := read_record(self._fd)) is not None:
            lines += self._lines(record, booted_at, now)
        return lines

    def close(self) -> None:
        """Close the device."""
        os.close(self._fd)

    def _lines(self, record: bytes, booted_at: datetime, now: datetime) -> list[LogLine]:
        header = _HEADER.match(record)
        if header is None or int(header["sequence"]) <= self._sequence:
            return []
        self._sequence = int(header["sequence"])
        logged_at = booted_at + timedelta(microseconds=int(header["microseconds"]))
        return [
            LogLine(
                message=line.message,
                observed_at=min(logged_at, now),
                origin=record_origin(line.facility),
            )
            for line in self._log.feed(record, now)
        ]


def read_record(fd: int) -> bytes | None:
    """Return the next record of a non-blocking descriptor of the device; None if there is none.

    Raises:
        OSError: reading the device failed.

    """
    while True:
        try:
            return os.read(fd, RECORD_BYTES)
        except BlockingIOError:
            return None
        except OSError as error:
            # Unread records were overwritten; the next read continues with the oldest.
            if error.errno != errno.EPIPE:
                raise


def open_kmsg(
    path: Path, keywords: Iterable[str], position: Position | None
) -> KmsgDevice | LogFile:
    """Open the kernel log at ``path``; a regular file contains the records of this boot only.

    Raises:
        OSError: the log is missing or not readable.

    """
    if stat.S_ISCHR(path.stat().st_mode):
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        return KmsgDevice(fd, keywords, position)
    return LogFile(path, keywords, position, is_kernel_log=True)
