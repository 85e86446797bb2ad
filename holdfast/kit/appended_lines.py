"""Reads the lines that are appended to a file."""

import os
from pathlib import Path
from typing import Final

from holdfast.kit.bounded_files import open_regular

CHUNK_BYTES: Final = 1 << 20
"""Default for the bytes of one read: a few milliseconds. Longer lines lose their beginning."""


class AppendedLines:
    """Reads each line of a regular file once.

    A file that was truncated, or replaced by another one as when logs are rotated, is read from its
    beginning. A writer that does not append leaves a hole of null bytes there, which are no part of
    a line. A progress bar ends its lines with a CR, which ends a line here, too.

    Args:
        path: the file; it need not exist.
        offset: number of bytes at the beginning that are not read.
        follow_links: whether ``path`` may be a symbolic link, such as ``/proc/self/fd/1``.
        chunk: maximum bytes of one read.
        skips: whether lines are skipped if the file grows faster than that.

    """

    def __init__(
        self,
        path: Path,
        *,
        offset: int = 0,
        follow_links: bool = False,
        chunk: int = CHUNK_BYTES,
        skips: bool = False,
    ) -> None:
        self._path, self._follow_links = path, follow_links
        self._offset, self._chunk, self._skips = offset, chunk, skips
        self._inode: int | None = None
        self._rest = b""
        self.has_more = False
        """Whether the last read has left something, also if it returned no complete line; or may
        have, because the file exists and could not be read."""

    def read(self) -> list[bytes]:
        """Return the next complete lines; none if there are none, or the file cannot be read."""
        self.has_more = False
        try:
            with open_regular(self._path, follow_links=self._follow_links) as (handle, status):
                if status.st_size < self._offset or self._inode not in (None, status.st_ino):
                    self._offset, self._rest = 0, b""
                self._inode = status.st_ino
                if self._skips and status.st_size - self._offset > self._chunk:
                    self._offset, self._rest = status.st_size - self._chunk, b""
                data = os.pread(handle, self._chunk, self._offset)
        except FileNotFoundError:
            return []
        except OSError:
            self.has_more = True
            return []
        self._offset += len(data)
        self.has_more = status.st_size > self._offset
        *lines, rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        self._rest = rest[-self._chunk :].lstrip(b"\0")
        return [line.lstrip(b"\0") for line in lines]

    def take_rest(self) -> list[bytes]:
        """Return the line that has been read without its end, once; none if there is none."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []


def has_space(path: Path | str) -> bool:
    """Return whether something can be appended to a file; also if that is not known.

    A quota that is used up is not seen. Root may use what is reserved.
    """
    try:
        found = os.statvfs(os.path.dirname(path) or ".")
    except OSError:
        return True
    free = found.f_bavail if os.geteuid() else found.f_bfree
    return free > 0 or not found.f_blocks  # some file systems report no sizes


def file_size(path: Path | str) -> int:
    """Return the size of a file in bytes; 0 if there is none."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
