"""Follows log files through growth, rotation, truncation and absence."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from holdfast.detectors.contract import LogLine, Origin
from holdfast.detectors.kernel_log import KernelLine, KernelLog
from holdfast.detectors.line_trust import record_origin

BLOCK: Final = 256 * 1024
"""Bytes per read."""

Position = Mapping[str, Any]
"""Read position of a log, in JSON types; empty if nothing could be read yet."""


class LogFile:
    """Follows a log file by its name, like ``tail -F``.

    It misses a file that gets the name and loses it again between two reads or before its first
    line, and a file that was truncated and has grown past its old length in between.
    """

    def __init__(
        self, path: Path, keywords: Iterable[str], position: Position | None, *, is_kernel_log: bool
    ) -> None:
        """Start following ``path``.

        Args:
            path: path of the log; the file may not exist yet.
            keywords: only records that contain one of these keywords are returned.
            position: position of the previous agent of this boot; None if there was none.
            is_kernel_log: whether the file contains records of ``/dev/kmsg`` of this boot.
                Without a position it is read from its start, and its records have the facility
                that they state. Any other file may contain lines of an earlier boot, is read from
                its end, and its lines may be forged.

        Raises:
            OSError: the file exists and cannot be read.

        """
        self._path = path
        self._is_kernel_log = is_kernel_log
        self._keywords = tuple(keywords)
        self._log = KernelLog(self._keywords)
        self._fd: int | None = None
        self._offset = 0
        if position is not None:
            self._resume(position)
        elif self._open(path) and not is_kernel_log:
            self._seek(os.SEEK_END)

    @property
    def position(self) -> Position:
        """Read position: the start of the first incomplete line."""
        if self._fd is None:
            return {}
        return {"inode": os.fstat(self._fd).st_ino, "offset": self._offset - self._log.unread}

    def read(self, now: datetime) -> list[LogLine]:
        """Return the records since the last call, a bounded number; empty when there are none.

        Their time is ``now``: a syslog time has no time zone, and the writer's may differ.

        Raises:
            OSError: reading the file failed.

        """
        if self._fd is None:
            self._open_again()
        records: list[KernelLine] = []
        while self._fd is not None and not records:
            if data := os.read(self._fd, BLOCK):
                self._offset += len(data)
                records = self._log.feed(data, now)
            elif self._size() < self._offset:  # truncated
                self._seek(os.SEEK_SET)
            elif self._has_successor():
                if self._size() > self._offset:
                    continue  # written before its successor was created
                records = self._log.close(now)
                if not self._open_again():
                    break
            else:
                break
        return [
            LogLine(
                message=record.message,
                observed_at=now,
                origin=record_origin(record.facility) if self._is_kernel_log else Origin.FILE,
            )
            for record in records
        ]

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _resume(self, position: Position) -> None:
        """Open the file of ``position``, also under the name that rotation gave it."""
        for path in (self._path, *self._rotated()) if position else ():
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_ino == position["inode"]:
                    self._open(path)
                    self._seek(os.SEEK_SET, position["offset"])
                    return
        self._open(self._path)

    def _rotated(self) -> Iterator[Path]:
        with contextlib.suppress(FileNotFoundError):
            for path in self._path.parent.iterdir():
                if path.name.startswith(self._path.name):
                    yield path

    def _open(self, path: Path) -> bool:
        """Open the file at ``path`` at its start; returns False if it does not exist."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            return False
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        self.close()
        self._fd, self._offset = fd, 0
        self._log = KernelLog(self._keywords)
        return True

    def _open_again(self) -> bool:
        """Like ``_open``, but treats an unreadable file as missing: its mode may change soon."""
        try:
            return self._open(self._path)
        except PermissionError:  # some daemons set the mode after they created the file
            return False

    def _seek(self, whence: int, offset: int = 0) -> None:
        self._offset = os.lseek(self._descriptor(), offset, whence)
        self._log = KernelLog(self._keywords)

    def _has_successor(self) -> bool:
        """Whether another file has the name now and is not empty.

        While it is empty, a syslog daemon not yet notified of the rotation writes to the old file.
        """
        try:
            at_path = self._path.stat()
        except FileNotFoundError:
            return False
        opened = os.fstat(self._descriptor())
        return at_path.st_size > 0 and (at_path.st_dev, at_path.st_ino) != (
            opened.st_dev,
            opened.st_ino,
        )

    def _size(self) -> int:
        return os.fstat(self._descriptor()).st_size

    def _descriptor(self) -> int:
        assert self._fd is not None  # noqa: S101 - called while a file is open
        return self._fd
