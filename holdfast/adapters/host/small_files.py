"""Reads small files of sysfs and procfs, which change between reads."""

import os
from pathlib import Path
from typing import Final

_LARGEST: Final = 1024 * 1024
_BLOCK: Final = 16 * 1024


def read_small(path: Path | str) -> str | None:
    """Return the stripped text of a file; None if it is missing or unreadable."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        data = b""
        while len(data) < _LARGEST and (block := os.read(fd, _BLOCK)):  # reads may be partial
            data += block
        return data.decode("utf-8", errors="replace").strip(" \t\r\n\0")
    except OSError:
        return None
    finally:
        os.close(fd)


def names_in(directory: Path | str) -> list[str]:
    """Return the sorted names in a directory; empty if it is missing."""
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []
