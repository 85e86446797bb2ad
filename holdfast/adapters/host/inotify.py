"""Wakes up when a file grows, appears or is replaced."""

import ctypes
import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_LIBC: Final = ctypes.CDLL(None, use_errno=True)

_MODIFY: Final = 0x002  # linux/inotify.h
_ATTRIB: Final = 0x004  # also sent when a name of the file is removed
_MOVED_TO: Final = 0x080
_CREATE: Final = 0x100
_MOVE_SELF: Final = 0x800

_FILE_EVENTS: Final = _MODIFY | _ATTRIB | _MOVE_SELF
_DIRECTORY_EVENTS: Final = _MOVED_TO | _CREATE

_ABSENT: Final = (errno.ENOENT, errno.ENOTDIR)
_EVENTS_BYTES: Final = 64 * 1024


class FileWatch:
    """File descriptor that becomes readable when one of some files may have changed."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """Watch ``paths``; files and directories may be missing at first."""
        self._watches: dict[tuple[Path, int], int] = {}
        self._watched_paths = [
            entry
            for path in paths
            for entry in ((path.parent, _DIRECTORY_EVENTS), (path, _FILE_EVENTS))
        ]
        self._fd: int | None = _LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd == -1:
            self._fd = None  # instance limit reached, or inotify is unavailable in this sandbox
        self.refresh()

    def fileno(self) -> int | None:
        """Return the file descriptor; None if inotify is unavailable, so files must be polled."""
        return self._fd

    def refresh(self) -> None:
        """Discard pending events and watch the existing files. Call it before each reading.

        Later changes to these files make the descriptor readable again.
        """
        try:
            self._drain()
            for path, events in self._watched_paths:
                self._watch(path, events)
        except OSError:  # limit of watches reached
            self.close()

    def close(self) -> None:
        """Stop watching."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _drain(self) -> None:
        try:
            while self._fd is not None and os.read(self._fd, _EVENTS_BYTES):
                pass
        except BlockingIOError:
            pass

    def _watch(self, path: Path, events: int) -> None:
        if self._fd is None:
            return
        watch = _LIBC.inotify_add_watch(self._fd, os.fsencode(path), events)
        if watch == -1:
            error = ctypes.get_errno()
            if error not in _ABSENT:
                raise OSError(error, os.strerror(error), str(path))
            return
        before = self._watches.get((path, events))
        self._watches[path, events] = watch
        if before is not None and before != watch:
            _LIBC.inotify_rm_watch(self._fd, before)  # another file has the name now
