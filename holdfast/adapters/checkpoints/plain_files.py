"""Reads regular files in untrusted directories, with limits.

Only regular files are opened: a FIFO would block, and a device has no end. A link may point to a
regular file: model hubs store checkpoints as links into a cache.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from holdfast.kit.bounded_files import open_regular, parse_json

CHUNK: Final = 1 << 20
"""Bytes per read."""

PART: Final = CHUNK // 4
"""Bytes per read of a range whose bytes are summed: they stay in the cache of the processor."""

_AHEAD: Final = 32 * CHUNK
"""Bytes that the kernel is asked to read ahead, so that the disk works while bytes are summed.

A thread that reads ahead is slower than none: threads wait for the interpreter's lock at each part.
"""

_REQUEST: Final = 4 * CHUNK
"""Bytes of each such request."""

_TEXT_LIMIT: Final = 256

JSON_LIMIT: Final = 1 << 24
"""Maximum bytes of JSON; parsed, they may take 50 times as much memory."""


@dataclass(frozen=True, slots=True)
class Window:
    """Range of bytes of an open file."""

    handle: int
    start: int
    size: int

    def read(self, offset: int, count: int) -> bytes:
        """Return up to ``count`` bytes at ``offset`` in the range; fewer at its end."""
        count = min(count, self.size - offset)
        if offset < 0 or count <= 0:
            return b""
        parts = []
        while count > 0 and (part := os.pread(self.handle, count, self.start + offset)):
            parts.append(part)
            offset, count = offset + len(part), count - len(part)
        return b"".join(parts)

    def announce(self, offset: int, count: int) -> None:
        """Ask the kernel to read bytes into its cache; without effect where it cannot."""
        if hasattr(os, "posix_fadvise"):  # not on macOS
            count = min(count, self.size - offset)
            os.posix_fadvise(self.handle, self.start + offset, count, os.POSIX_FADV_WILLNEED)

    def part(self, offset: int, size: int) -> "Window":
        """Return a range within this one, clipped to it."""
        begin = max(0, min(offset, self.size))
        return Window(self.handle, self.start + begin, max(0, min(size, self.size - begin)))


def chunks(window: Window) -> Iterator[bytes]:
    """Yield the bytes of a range in order; the kernel reads the next ones meanwhile.

    Fewer bytes than the range has come if the file was truncated since. Raises OSError.
    """
    requested = 0
    for offset in range(0, window.size, PART):
        while requested < window.size and requested < offset + _AHEAD:
            window.announce(requested, _REQUEST)
            requested += _REQUEST
        yield window.read(offset, PART)


@contextmanager
def opened(path: Path) -> Iterator[Window]:
    """Open a regular file.

    Raises:
        OSError: the file cannot be opened, or is not a regular file.

    """
    with open_regular(path, follow_links=True) as (handle, status):
        yield Window(handle, 0, status.st_size)


def read_bytes(path: Path, limit: int) -> bytes:
    """Return the content of a regular file, truncated to ``limit`` bytes.

    Raises:
        OSError: the file cannot be read, or is not a regular file.

    """
    with opened(path) as window:
        return window.read(0, limit)


def read_text(path: Path) -> str:
    """Return the first line or two of a short regular file, stripped.

    Raises:
        OSError: the file cannot be read, or is not a regular file.

    """
    return read_bytes(path, _TEXT_LIMIT).decode("utf-8", errors="replace").strip()


def read_object(path: Path) -> dict[str, object]:
    """Return the JSON object in a regular file.

    Raises:
        OSError: the file cannot be read, or is not a regular file.
        ValueError: not a JSON object, nested too deeply, or larger than ``JSON_LIMIT``.

    """
    data = read_bytes(path, JSON_LIMIT + 1)
    value = parse_json(data) if len(data) <= JSON_LIMIT else None
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Entry of a directory."""

    name: str
    """Name in the directory."""

    path: Path
    """Path of the entry; a link is not resolved."""

    is_dir: bool
    """Whether it, or the target of the link, is a directory."""

    is_file: bool
    """Whether it, or the target of the link, is a regular file."""

    is_link: bool
    """Whether it is a symbolic link."""

    size: int
    """Size in bytes; of the target, if it is a link."""

    changed_at: float
    """Modification time in seconds since the epoch."""


def listed(folder: Path) -> dict[str, Entry]:
    """Return the entries of a directory by name, in alphabetical order; links are followed.

    A broken link is neither a file nor a directory. A directory that does not exist has no
    entries.

    Raises:
        OSError: the directory cannot be read.

    """
    found = {}
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return {}
    for name in names:
        path = folder / name
        try:
            own = os.lstat(path)
        except FileNotFoundError:
            continue
        target: os.stat_result | None = own
        if stat.S_ISLNK(own.st_mode):
            target = _target(path)
        mode = target.st_mode if target is not None else 0
        shown = target if target is not None else own
        found[name] = Entry(
            name=name,
            path=path,
            is_dir=stat.S_ISDIR(mode),
            is_file=stat.S_ISREG(mode),
            is_link=stat.S_ISLNK(own.st_mode),
            size=shown.st_size,
            changed_at=shown.st_mtime,
        )
    return found


def names_in(folder: Path) -> frozenset[str]:
    """Return the names in a directory without ``stat`` calls: there may be thousands.

    Raises:
        OSError: the directory cannot be read; one that was just removed is empty.

    """
    try:
        return frozenset(os.listdir(folder))
    except FileNotFoundError:
        return frozenset()


def _target(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:  # a broken link, or a loop of links
        return None


def tree_size(path: Path, depth: int = 4) -> tuple[int, datetime]:
    """Return bytes and newest modification time of a file, or of ``depth`` directory levels."""
    size, newest = 0, 0.0
    pending = [(path, depth)]
    while pending:
        one, left = pending.pop()
        try:
            status = os.stat(one)
            newest = max(newest, status.st_mtime)
            if stat.S_ISREG(status.st_mode):
                size += status.st_size
            elif stat.S_ISDIR(status.st_mode) and left > 0:
                pending += [(Path(entry.path), left - 1) for entry in os.scandir(one)]
        except OSError:  # removed, or unreadable, which verification reports
            continue
    try:
        return size, datetime.fromtimestamp(newest, UTC)
    except (OverflowError, ValueError, OSError):
        return size, datetime.fromtimestamp(0, UTC)
