"""Verifies files of OCDBT, the key-value store of TensorStore in which Orbax saves arrays.

A manifest or node starts with a magic number and its length, and ends with the CRC32C of all bytes
before. Between nodes of a data file are values: compressed chunks of arrays, as frames of zstd,
whose lengths follow from the headers of their blocks. What else a value may be is not parsed.

Source: google.github.io/tensorstore/kvstore/ocdbt and RFC 8878.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.contract import damaged, incomplete
from holdfast.adapters.checkpoints.plain_files import CHUNK, Window, opened, read_bytes
from holdfast.model.checkpoints import Depth, Problem

_MANIFEST: Final = b"\x0c\xdb\x3a\x2a"
_NODES: Final = (b"\x0c\xdb\x20\xde", b"\x0c\xdb\x12\x34")
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_FILE: Final = re.compile(rb"d/([0-9a-f]{32})(?![0-9a-f])")
_SHORTEST: Final = 18
"""Bytes of magic number, length, version, compression and checksum."""

_SUMMED: Final = 1 << 20
"""Maximum bytes of a node whose checksum is computed; nodes are usually at most 8 MiB, and Python
computes 3 MB per second."""

_PARTS: Final = 1 << 20
"""Maximum number of values and nodes that are read of a file."""

_POLYNOMIAL: Final = 0x82F63B78


class _Ends(Exception):
    """A value or node would end after its file."""


def manifest_problems(path: Path) -> Iterator[Problem]:
    """Yield the problems of a ``manifest.ocdbt``."""
    with opened(path) as window:
        if window.size == 0:
            yield incomplete("is empty")
        elif window.read(0, 4) != _MANIFEST:
            yield damaged("is not a manifest of OCDBT")
        else:
            yield from _node_problems(window, 0, Depth.HASHES)


def named_files(path: Path) -> frozenset[str]:
    """Return the data files that a manifest names and whose names are not compressed."""
    return frozenset(str(name, "ascii") for name in _FILE.findall(read_bytes(path, _SUMMED)))


def data_problems(path: Path, depth: Depth) -> Iterator[Problem]:
    """Yield the problems of a data file; sizes of compressed values are read at any depth."""
    with opened(path) as window:
        if window.size == 0:
            yield incomplete("is empty")
        at = 0
        for _ in range(_PARTS):
            magic = window.read(at, 4)
            try:
                if magic in _NODES:
                    yield from _node_problems(window, at, depth)
                    at += _length(window, at)
                elif magic == _ZSTD:
                    at = _after_frame(window, at)
                elif magic and any(one.startswith(magic) for one in (*_NODES, _ZSTD)):
                    raise _Ends
                else:
                    if at and _is_zero(window, at):
                        yield damaged(f"has only zeros from offset {at} on")
                    return
            except _Ends:
                yield incomplete(f"is cut off in the part at offset {at}")
                return


def _is_zero(window: Window, at: int) -> bool:
    """Return whether all bytes from an offset on are 0, as in a block that was never written."""
    return at < window.size and all(
        not any(window.read(start, CHUNK)) for start in range(at, window.size, CHUNK)
    )


def _length(window: Window, at: int) -> int:
    head = window.read(at + 4, 8)
    length = int.from_bytes(head, "little")
    if len(head) < 8 or at + length > window.size or length < _SHORTEST:
        raise _Ends
    return length


def _node_problems(window: Window, at: int, depth: Depth) -> Iterator[Problem]:
    try:
        length = _length(window, at)
    except _Ends:
        yield incomplete(f"is cut off in the part at offset {at}")
        return
    if depth is Depth.HASHES and length <= _SUMMED:
        data = window.read(at, length)
        if _crc32c(data[:-4]) != int.from_bytes(data[-4:], "little"):
            yield damaged(f"the checksum of the part at offset {at} does not match")


def _after_frame(window: Window, at: int) -> int:
    """Return the offset after a frame of zstd."""
    flags = _byte(window, at + 4)
    is_single, has_sum = bool(flags & 0x20), bool(flags & 0x04)
    size_bytes = (1 if is_single else 0, 2, 4, 8)[flags >> 6]
    at += 5 + (not is_single) + (0, 1, 2, 4)[flags & 3] + size_bytes
    for _ in range(_PARTS):
        head = window.read(at, 3)
        if len(head) < 3:
            raise _Ends
        block = int.from_bytes(head, "little")
        is_run = block >> 1 & 3 == 1  # one byte, repeated
        at += 3 + (1 if is_run else block >> 3)
        if at > window.size:
            raise _Ends
        if block & 1:
            break
    at += 4 * has_sum
    if at > window.size:
        raise _Ends
    return at


def _byte(window: Window, at: int) -> int:
    data = window.read(at, 1)
    if not data:
        raise _Ends
    return data[0]


def _table() -> tuple[int, ...]:
    rows = []
    for row in range(256):
        value = row
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        rows.append(value)
    return tuple(rows)


_ROWS: Final = _table()


def _crc32c(data: bytes) -> int:
    value = 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ _ROWS[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF
