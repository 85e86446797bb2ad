"""Writes lines to a file or to standard output without blocking."""

import os
import select
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from holdfast.model.errors import ConfigError

KEPT_BYTES: Final = 1024 * 1024
"""Buffer size for lines that cannot be written; the oldest are dropped beyond it."""

_PIECE: Final = 4096  # PIPE_BUF: bytes that a writable pipe accepts in one write


class LineOutput:
    """Output of log lines.

    A file is appended to; after it was renamed or removed, as by log rotation, a new one is
    created. If a pipe is full or the disk is full, lines are buffered and ``flush`` retries them.
    """

    def __init__(self, path: Path | None, log: Callable[[str], None]) -> None:
        """Write to the file ``path``, or to standard output without one.

        Args:
            path: created if missing; its directory is not.
            log: takes a message for a person, when writing fails for the first time and when
                lines are lost.

        Raises:
            ConfigError: the file cannot be opened.

        """
        self.lost = 0
        """Number of dropped lines."""

        self._path = path
        self._log = log
        self._fd: int | None = None
        self._pending: deque[bytes] = deque()
        self._size = 0
        self._has_failed = False
        try:
            self._open()
        except OSError as error:
            raise ConfigError(f"cannot write the log to {self._name}: {error.strerror}") from error

    def write(self, lines: Iterable[str]) -> None:
        """Write lines, or buffer them."""
        for line in lines:
            data = f"{line}\n".encode()
            self._pending.append(data)
            self._size += len(data)
        self.flush()

    def flush(self) -> None:
        """Retry the buffered lines."""
        if not self._pending:
            return
        try:
            why = self._drain()
        except OSError as error:
            why = error.strerror or str(error)
        if why and not self._has_failed:
            self._log(f"cannot write the log to {self._name}: {why}; retrying")
        self._has_failed = bool(why)
        self._drop_oldest()

    def close(self) -> None:
        """Close the file; standard output stays open."""
        if self._fd is not None and self._path is not None:
            os.close(self._fd)
        self._fd = None

    @property
    def _name(self) -> str:
        return "standard output" if self._path is None else str(self._path)

    def _open(self) -> int:
        if self._path is None:
            self._fd = 1
        elif self._fd is None or self._is_replaced(self._fd, self._path):
            self.close()
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
            self._fd = os.open(self._path, flags, 0o640)
        return self._fd

    def _is_replaced(self, fd: int, path: Path) -> bool:
        try:
            return not os.path.samestat(os.fstat(fd), path.stat())
        except FileNotFoundError:
            return True

    def _drain(self) -> str:
        """Write without blocking. Returns why lines are left; empty if none are."""
        fd = self._open()
        while self._pending:
            if not select.select([], [fd], [], 0)[1]:
                return "the pipe is full"
            first = self._pending[0]
            written = os.write(fd, first[:_PIECE])
            self._size -= written
            if written < len(first):
                self._pending[0] = first[written:]
            else:
                self._pending.popleft()
        return ""

    def _drop_oldest(self) -> None:
        lost = 0
        while self._size > KEPT_BYTES and len(self._pending) > 1:
            dropped = self._pending[1]  # the first may be half written
            del self._pending[1]
            self._size -= len(dropped)
            lost += 1
        if lost:
            self._log(f"{lost} log lines dropped: {self._name} cannot be written")
        self.lost += lost
