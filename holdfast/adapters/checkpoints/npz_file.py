"""Verifies ``.npz`` files of NumPy: zip archives with the CRC32 of every array."""

import os
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.contract import damaged, incomplete
from holdfast.adapters.checkpoints.plain_files import CHUNK, opened
from holdfast.model.checkpoints import Depth, Problem

SUFFIX: Final = ".npz"
_START: Final = b"PK"
_ERRORS: Final = (
    zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError,
)  # fmt: skip
"""What ``zipfile`` raises for an archive that is not valid."""


def file_problems(path: Path, depth: Depth) -> Iterator[Problem]:
    """Yield the problems of an archive; arrays are only read with ``hashes``.

    Raises:
        OSError: the file cannot be read, or is not a regular file.

    """
    with opened(path) as window:
        if window.size == 0:
            yield incomplete("is empty")
            return
        is_begin = window.read(0, len(_START)) == _START[: window.size]
        with os.fdopen(os.dup(window.handle), "rb") as file:
            try:
                archive = zipfile.ZipFile(file)
            except _ERRORS:
                if is_begin:
                    yield incomplete("is truncated: its zip directory, which is last, is missing")
                else:
                    yield damaged("is not a NumPy archive")
                return
            for member in archive.infolist():
                if (why := _problem(archive, member, depth)) is not None:
                    yield damaged(why)


def _problem(archive: zipfile.ZipFile, member: zipfile.ZipInfo, depth: Depth) -> str | None:
    """Return why an array cannot be loaded; None if it can."""
    name = member.filename[:80]
    try:
        with archive.open(member) as array:  # reads its header
            while depth is Depth.HASHES and array.read(CHUNK):
                pass
    except _ERRORS:
        return f"has a wrong checksum in array {name}, or cannot be read"
    return None
