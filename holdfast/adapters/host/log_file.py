"""Log files that grow, are rotated, cut short, missing, and late."""

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
"""Bytes that are read at once."""

Position = Mapping[str, Any]
"""How far a log was read, in types that JSON knows; empty while there was nothing to read."""


class LogFile:
    """Follows a log file by its name, like ``tail -F``.

    What it cannot see: a file that takes the name and loses it again between two reads or before
    its first line, and a file that was cut short and has grown past its old length in between.
    """

    def __init__(
        self, path: Path, keywords: Iterable[str], position: Position | None, *, is_kernel_log: bool
    ) -> None:
        """Begin to follow ``path``.

        Args:
            path: the log; it may be missing as yet.
            keywords: only records that hold one of these words are returned.
            position: where an agent of this boot ended; None if there was none.
            is_kernel_log: whether the file contains records of ``/dev/kmsg`` of this boot.
                Without a position it is read from its start, and its records have the facility
                that they state. Any other file may contain lines of an earlier boot, is read from
                its end, and its lines may be forged.

        Raises:
            OSError: the file is there and cannot be read.

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
        """How far it was read: to the start of the first line that is not whole yet."""
        if self._fd is None:
            return {}
        return {"inode": os.fstat(self._fd).st_ino, "offset": self._offset - self._log.unread}

    def read(self, now: datetime) -> list[LogLine]:
        """Records that came since the last call; a bounded number, empty once there are none.

        They count as seen ``now``, for a syslog time has no zone and may be of another one.

        Raises:
            OSError: the device under the file fails.

        """
        if self._fd is None:
            self._open_again()
        records: list[KernelLine] = []
        while self._fd is not None and not records:
            if data := os.read(self._fd, BLOCK):
                self._offset += len(data)
                records = self._log.feed(data, now)
            elif self._is_cut_short():
                self._seek(os.SEEK_SET)
            elif self._has_successor():
                if self._size() > self._offset:
                    continue  # written before the successor was
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
        """Let go of the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _resume(self, position: Position) -> None:
        """Find the file that was read, under the name that rotation gave it if need be."""
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
        """Go to the start of the file at ``path``; False if there is none."""
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
        """As ``_open``, but a file that may not be read is as good as none: it may be soon."""
        try:
            return self._open(self._path)
        except PermissionError:  # some daemons set the mode after they created the file
            return False

    def _seek(self, whence: int, offset: int = 0) -> None:
        self._offset = os.lseek(self._descriptor(), offset, whence)
        self._log = KernelLog(self._keywords)

    def _is_cut_short(self) -> bool:
        return self._size() < self._offset

    def _has_successor(self) -> bool:
        """Whether another file has the name now, and was written to.

        While it is empty, a syslog daemon that was not told of the rotation yet writes on to ours.
        """
        try:
            theirs = self._path.stat()
        except FileNotFoundError:
            return False
        ours = os.fstat(self._descriptor())
        return theirs.st_size > 0 and (theirs.st_dev, theirs.st_ino) != (ours.st_dev, ours.st_ino)

    def _size(self) -> int:
        return os.fstat(self._descriptor()).st_size

    def _descriptor(self) -> int:
        assert self._fd is not None  # noqa: S101 - called while a file is open
        return self._fd
