"""Reads files that a less trusted process may have written, within bounds.

Only regular files are read: a FIFO would block the reader, a device may never end, and a symbolic
link could name any file that the reader may open. Size and nesting are bounded, so that no content
costs more memory or time than the caller allows.
"""

import errno
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

MAX_DEPTH: Final = 64
"""Nesting of JSON that is parsed. Reports and records nest less than ten levels."""

_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
"""A string, which may be unterminated, or a bracket."""


class NotRegular(OSError):
    """A file is not a regular file; ``strerror`` is its type, such as ``is a FIFO, ...``."""


@contextmanager
def open_regular(
    path: Path | str, *, follow_links: bool = False
) -> Iterator[tuple[int, os.stat_result]]:
    """Open a regular file; yields its descriptor and its status.

    Args:
        path: the file.
        follow_links: whether the last part of ``path`` may be a symbolic link.

    Raises:
        NotRegular: it is not a regular file.
        OSError: it cannot be opened.

    """
    try:
        handle = os.open(path, _FLAGS if follow_links else _FLAGS | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ELOOP and not follow_links:
            raise _not_regular(path, "a symbolic link") from error
        if error.errno == errno.ENXIO:  # open(2) of a socket
            raise _not_regular(path, "a socket") from error
        raise
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise _not_regular(path, _kind(status.st_mode))
        yield handle, status
    finally:
        os.close(handle)


def read_bounded(path: Path | str, limit: int, *, follow_links: bool = False) -> bytes:
    """Return the content of a regular file of at most ``limit`` bytes.

    Args:
        path: the file.
        limit: maximum size in bytes.
        follow_links: whether the last part of ``path`` may be a symbolic link.

    Raises:
        OSError: the file cannot be read, is not a regular file, or is larger.

    """
    with open_regular(path, follow_links=follow_links) as (handle, _):
        data = _read(handle, limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"larger than {limit} bytes", os.fspath(path))
    return data


def read_end(path: Path | str, limit: int) -> bytes:
    """Return the last ``limit`` bytes of a regular file.

    Raises:
        OSError: the file cannot be read, or is not a regular file.

    """
    with open_regular(path) as (handle, status):
        os.lseek(handle, max(0, status.st_size - limit), os.SEEK_SET)
        return _read(handle, limit)


def end_text(path: Path | str, limit: int) -> str:
    """Return the text at the end of a regular file; empty if it cannot be read."""
    try:
        return read_end(path, limit).decode("utf-8", "replace")
    except OSError:
        return ""


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON document that nests at most ``MAX_DEPTH`` levels.

    Raises:
        ValueError: the text is not JSON, or is nested too deeply.

    """
    if is_nested_deeply(text):
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    return json.loads(text if isinstance(text, str) else text.decode("utf-8", "surrogatepass"))


def is_nested_deeply(text: str | bytes) -> bool:
    """Whether JSON nests more than ``MAX_DEPTH`` levels."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return data.count(b"[") + data.count(b"{") > MAX_DEPTH and _depth(data) > MAX_DEPTH


def _read(handle: int, limit: int) -> bytes:
    """Read until the end of the file, or ``limit`` bytes."""
    parts = []
    while limit > 0 and (part := os.read(handle, min(limit, 1 << 20))):
        parts.append(part)
        limit -= len(part)
    return b"".join(parts)


def _depth(data: bytes) -> int:
    """Return the greatest nesting of brackets outside of strings."""
    depth = deepest = 0
    for token in _TOKEN.finditer(data):
        first = token[0][:1]
        if first in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif first in b"]}":
            depth -= 1
    return deepest


def _not_regular(path: Path | str, kind: str) -> NotRegular:
    return NotRegular(errno.EINVAL, f"is {kind}, expected a regular file", os.fspath(path))


def _kind(mode: int) -> str:
    kinds = (
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISDIR, "a directory"),
        (stat.S_ISCHR, "a character device"),
        (stat.S_ISBLK, "a block device"),
    )
    return next((name for is_kind, name in kinds if is_kind(mode)), "not a file")
