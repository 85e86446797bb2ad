"""Files of sysfs and procfs: small, and read anew each time."""

import os
from pathlib import Path
from typing import Final

_LARGEST: Final = 1024 * 1024
_BLOCK: Final = 16 * 1024


def read_small(path: Path | str) -> str | None:
    """The text of a file without blanks at its ends; None if it is missing or refuses."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        data = b""
        while len(data) < _LARGEST and (block := os.read(fd, _BLOCK)):  # the kernel gives parts
            data += block
        return data.decode("utf-8", errors="replace").strip(" \t\r\n\0")
    except OSError:
        return None
    finally:
        os.close(fd)


def names_in(directory: Path | str) -> list[str]:
    """The names in a directory, sorted; none if it is missing."""
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []
