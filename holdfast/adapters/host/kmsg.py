"""The kernel's own log: the device /dev/kmsg, or a file with its records."""

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
"""Room for one record: the kernel refuses to be read with less than the record needs, which is
8192 at most (``CONSOLE_EXT_LOG_MAX`` in linux/printk.h)."""

LINES: Final = 1000
"""Marked records that are read at once."""

_HEADER: Final = re.compile(rb"[0-9]+,(?P<sequence>[0-9]+),(?P<microseconds>[0-9]+),")


class KmsgDevice:
    """Reads /dev/kmsg, from the oldest record that the kernel still has."""

    def __init__(self, fd: int, keywords: Iterable[str], position: Position | None) -> None:
        """Read ``fd``, the device opened not to block; go on behind ``position`` if not None."""
        self._fd = fd
        self._log = KernelLog(keywords)
        self._sequence = position.get("sequence", -1) if position is not None else -1

    def fileno(self) -> int:
        """For ``select``: readable when there is a record."""
        return self._fd

    @property
    def position(self) -> Position:
        """The number of the last record that was read."""
        return {"sequence": self._sequence}

    def read(self, now: datetime) -> list[LogLine]:
        """Records that came since the last call; a bounded number, empty once there are none.

        Raises:
            OSError: the device fails.

        """
        booted_at = now - timedelta(seconds=time.monotonic())
        lines: list[LogLine] = []
        while len(lines) < LINES and (record := self._record()) is not None:
            lines += self._lines(record, booted_at, now)
        return lines

    def close(self) -> None:
        """Let go of the device."""
        os.close(self._fd)

    def _record(self) -> bytes | None:
        while True:
            try:
                return os.read(self._fd, RECORD_BYTES)
            except BlockingIOError:
                return None
            except OSError as error:
                # Records were overwritten before we came; the next read goes on with the oldest.
                if error.errno != errno.EPIPE:
                    raise

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


def open_kmsg(
    path: Path, keywords: Iterable[str], position: Position | None
) -> KmsgDevice | LogFile:
    """The kernel's log at ``path``; a regular file holds this boot's records and no other's.

    Raises:
        OSError: it is missing or may not be read.

    """
    if stat.S_ISCHR(path.stat().st_mode):
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        return KmsgDevice(fd, keywords, position)
    return LogFile(path, keywords, position, is_kernel_log=True)
