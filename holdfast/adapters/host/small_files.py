"""Reads small files of sysfs and procfs, which change between reads.

A file that is missing, or whose driver returns an error, such as EINVAL for the speed of a link
that is down, has no value. Without memory or file descriptors nothing is known about it.
"""

import os
from pathlib import Path
from typing import Final

from holdfast.kit.lacking import LACKING
from holdfast.model.errors import BackendError

_LARGEST: Final = 1024 * 1024
_BLOCK: Final = 16 * 1024


def read_small(path: Path | str) -> str | None:
    """Return the stripped text of a file; None if it is missing or unreadable.

    Raises:
        BackendError: the system lacks resources to read it.

    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        _reject_lacking(path, error)
        return None
    try:
        data = b""
        while len(data) < _LARGEST and (block := os.read(fd, _BLOCK)):  # reads may be partial
            data += block
        return data.decode("utf-8", errors="replace").strip(" \t\r\n\0")
    except OSError as error:
        _reject_lacking(path, error)
        return None
    finally:
        os.close(fd)


def names_in(directory: Path | str) -> list[str]:
    """Return the sorted names in a directory; empty if it is missing or unreadable.

    Raises:
        BackendError: the system lacks resources to read it.

    """
    try:
        return sorted(os.listdir(directory))
    except OSError as error:
        _reject_lacking(directory, error)
        return []


def link_target(path: Path | str) -> str | None:
    """Return the last name in the target of a symbolic link; None if there is no such link.

    Raises:
        BackendError: the system lacks resources to read it.

    """
    try:
        return os.path.basename(os.readlink(path))
    except OSError as error:
        _reject_lacking(path, error)
        return None


def _reject_lacking(path: Path | str, error: OSError) -> None:
    """Raise an error that is none of the file: as missing it would count as a lost device."""
    if error.errno in LACKING:
        raise BackendError(f"cannot read {path}: {error.strerror}") from error
