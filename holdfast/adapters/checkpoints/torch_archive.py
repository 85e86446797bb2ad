"""Reads the zip archives of ``torch.save`` and of TorchScript, without torch.

``torch.save`` does not compress members. ``torch.jit.save`` compresses the members of source code.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from holdfast.adapters.checkpoints.plain_files import CHUNK, Window, chunks

ZIP_START: Final = b"PK\x03\x04"
_END: Final = struct.Struct("<4s4H2LH")
_END_64: Final = struct.Struct("<4sQ2H2L4Q")
_LOCATOR: Final = struct.Struct("<4sLQL")
_CENTRAL: Final = struct.Struct("<4s6H3L5H2L")
_LOCAL: Final = struct.Struct("<4s5H3L2H")
_FULL: Final = 0xFFFFFFFF
"""Value of a 32-bit field whose real value is in the 64-bit extra field."""

_STORED: Final = 0
_DEFLATED: Final = 8
"""Method of a compressed member."""

_DIRECTORY_LIMIT: Final = 1 << 26
"""Maximum bytes of a zip directory: an entry takes about 80, a large model has some thousand."""

LEGACY_START: Final = bytes.fromhex("80028a0a6cfc9c46f920")
"""Protocol 2 and the first bytes of the magic number 0x1950a86a20f9469cfc6c."""


class InvalidTorchFile(Exception):
    """The file is not a valid ``torch.save`` file; the message gives the reason."""


class CutOff(InvalidTorchFile):
    """The file is truncated."""


@dataclass(frozen=True, slots=True)
class Record:
    """Member of the archive."""

    name: str
    offset: int
    """Offset of its bytes from the start of the archive."""

    size: int
    """Its bytes in the archive."""

    crc: int
    inflated: int | None = None
    """Its bytes once decompressed; None if it is not compressed."""


def records(window: Window) -> dict[str, Record]:
    """Return the members of an archive by name, without the top-level folder.

    Raises:
        InvalidTorchFile: the zip directory, which is written last, is missing or invalid.

    """
    start, size, count = _directory(window)
    data = window.read(start, size)
    found: dict[str, Record] = {}
    at = 0
    for _ in range(count):
        if at + _CENTRAL.size > len(data):
            raise InvalidTorchFile("has a corrupt zip directory")
        record, at = _member(window, data, at, start)
        found[record.name.partition("/")[2]] = record
    if at != size or len(found) != count:
        raise InvalidTorchFile("has a corrupt zip directory")
    return found


def _directory(window: Window) -> tuple[int, int, int]:
    """Return offset, size and number of entries of the zip directory."""
    tail = window.read(window.size - _END.size, _END.size)
    if len(tail) < _END.size or not tail.startswith(b"PK\x05\x06"):
        raise _without_end(window, tail)
    _, disk, first_disk, own_count, count, size, start, comment = _END.unpack(tail)
    short = (disk, first_disk, own_count, count, size, start)
    end = window.size - _END.size
    at = end - _LOCATOR.size
    locator = window.read(at, _LOCATOR.size) if at >= 0 else b""
    if len(locator) == _LOCATOR.size and locator.startswith(b"PK\x06\x07"):
        _, own_disk, end, disks = _LOCATOR.unpack(locator)
        found = window.read(end, _END_64.size)
        if len(found) < _END_64.size or not found.startswith(b"PK\x06\x06"):
            raise InvalidTorchFile("has a corrupt zip directory")
        _, length, _, _, *wide = _END_64.unpack(found)
        pairs = zip(short, wide, (0xFFFF,) * 4 + (_FULL,) * 2, strict=True)
        if (
            own_disk
            or disks != 1
            or length != 44
            or any(a not in (b, full) for a, b, full in pairs)
        ):
            raise InvalidTorchFile("has a corrupt zip directory")
        disk, first_disk, own_count, count, size, start = wide
    if disk or first_disk or own_count != count or comment or start + size != end:
        raise InvalidTorchFile("has a corrupt zip directory")
    if size > _DIRECTORY_LIMIT or count * _CENTRAL.size > size:
        raise InvalidTorchFile("has a corrupt zip directory")
    return start, size, count


def _without_end(window: Window, tail: bytes) -> InvalidTorchFile:
    """Return why a file has no zip directory at its end."""
    matches = sum(one == other for one, other in zip(tail, b"PK\x05\x06", strict=False))
    if len(tail) == _END.size and matches > 2:  # a truncated file has other bytes there
        return InvalidTorchFile("has a corrupt zip directory")
    head = window.read(0, len(LEGACY_START))
    is_begin = len(head) < len(LEGACY_START) and LEGACY_START.startswith(head)
    if is_begin or head.startswith(ZIP_START) or ZIP_START.startswith(head):
        return CutOff("is truncated: its zip directory, which is written last, is missing")
    return InvalidTorchFile("is not a torch.save file")


def _member(window: Window, data: bytes, at: int, limit: int) -> tuple[Record, int]:
    """Return the directory entry at ``at``, and the offset of the next entry."""
    fields = _CENTRAL.unpack_from(data, at)
    method, crc, packed, size = fields[4], fields[7], fields[8], fields[9]
    name_size, extra_size, comment_size, header = fields[10], fields[11], fields[12], fields[16]
    begin = at + _CENTRAL.size
    raw = data[begin : begin + name_size]
    extra = data[begin + name_size : begin + name_size + extra_size]
    size, packed, header = _widened(extra, size, packed, header)
    name = raw.decode("utf-8", "replace")
    is_deflated = method == _DEFLATED and _may_be_deflated(name)
    is_stored = method == _STORED and packed == size
    if fields[0] != b"PK\x01\x02" or not (is_stored or is_deflated):
        raise InvalidTorchFile("has a corrupt zip directory")
    local = window.read(header, _LOCAL.size)
    if len(local) < _LOCAL.size or not local.startswith(ZIP_START):
        raise InvalidTorchFile(f"has no header for record {name}")
    _, _, _, own_method, *_, own_size, own_extra = _LOCAL.unpack(local)
    if is_deflated and own_method != method:  # a flipped bit makes 8 of 0
        raise InvalidTorchFile(f"has a header with another method for record {name}")
    if window.read(header + _LOCAL.size, own_size) != raw:
        raise InvalidTorchFile(f"has a header with another name for record {name}")
    offset = header + _LOCAL.size + own_size + own_extra
    if offset + packed > limit:
        raise InvalidTorchFile(f"has a record {name} that exceeds the file")
    record = Record(name, offset, packed, crc, size if is_deflated else None)
    return record, begin + name_size + extra_size + comment_size


def _may_be_deflated(name: str) -> bool:
    """Return whether a member may be compressed; ``torch.load`` maps the others into memory."""
    own = name.partition("/")[2]
    return not own.startswith("data/") and own not in ("data.pkl", "version")


def _widened(extra: bytes, *values: int) -> tuple[int, ...]:
    """Return 32-bit fields, with the full ones replaced by their 64-bit values."""
    wide: list[int] = []
    at = 0
    while at + 4 <= len(extra):
        kind, size = struct.unpack_from("<2H", extra, at)
        if kind == 1:
            body = extra[at + 4 : at + 4 + size]
            wide = [int.from_bytes(body[one : one + 8], "little") for one in range(0, len(body), 8)]
        at += 4 + size
    return tuple(wide.pop(0) if value == _FULL and wide else value for value in values)


def check_sums(window: Window, found: dict[str, Record]) -> None:
    """Check the CRC32 of every record; torch writes 0 for all records if checksums are off."""
    if not any(record.crc for record in found.values()):
        return
    for record in found.values():
        crc = size = 0
        length = record.size if record.inflated is None else record.inflated
        for part in _content(window, record):
            crc, size = zlib.crc32(part, crc), size + len(part)
            if size > length:
                break
        if size != length:
            raise InvalidTorchFile(f"has a record {record.name} of another length")
        if crc != record.crc:
            raise InvalidTorchFile(f"has a wrong checksum in record {record.name}")


def _content(window: Window, record: Record) -> Iterator[bytes]:
    """Yield the bytes of a record in small parts: a hostile file may inflate to any size."""
    parts = chunks(window.part(record.offset, record.size))
    if record.inflated is None:
        yield from parts
        return
    machine = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        for part in parts:
            rest = part
            while rest:
                yield machine.decompress(rest, CHUNK)
                rest = machine.unconsumed_tail
        yield machine.flush()
    except zlib.error as error:
        raise InvalidTorchFile(f"has a corrupt record {record.name}") from error
