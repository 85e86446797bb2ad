"""Verifies ``torch.save`` files, without torch and without unpickling.

Since PyTorch 1.6 such a file is a zip archive with uncompressed members, among them ``data.pkl``
and one ``data/<key>`` per storage. ``torch.load`` does not verify the CRC32 of members. The legacy
format is five pickles followed by the storages, without any checksum.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.contract import CannotVerify, damaged, incomplete
from holdfast.adapters.checkpoints.pickles import (
    SIZE_LIMIT,
    Built,
    Global,
    InvalidPickle,
    Loaded,
    Pairs,
    load,
)
from holdfast.adapters.checkpoints.plain_files import Window, chunks, opened
from holdfast.model.checkpoints import Depth, Problem

ZIP_START: Final = b"PK\x03\x04"
_END: Final = struct.Struct("<4s4H2LH")
_END_64: Final = struct.Struct("<4sQ2H2L4Q")
_LOCATOR: Final = struct.Struct("<4sLQL")
_CENTRAL: Final = struct.Struct("<4s6H3L5H2L")
_LOCAL: Final = struct.Struct("<4s5H3L2H")
_FULL: Final = 0xFFFFFFFF
"""Value of a 32-bit field whose real value is in the 64-bit extra field."""

_DIRECTORY_LIMIT: Final = 1 << 26
"""Maximum bytes of a zip directory: an entry takes about 80, a large model has some thousand."""

_LEGACY_START: Final = bytes.fromhex("80028a0a6cfc9c46f920")
"""Protocol 2 and the first bytes of the magic number 0x1950a86a20f9469cfc6c."""

_ITEM_SIZES: Final = {
    **dict.fromkeys(
        ("Untyped", "Byte", "Char", "Bool", "QUInt8", "QInt8", "QUInt4x2", "QUInt2x4"), 1
    ),
    **dict.fromkeys(("Short", "Half", "BFloat16"), 2),
    **dict.fromkeys(("Int", "Float", "QInt32"), 4),
    **dict.fromkeys(("Long", "Double", "ComplexFloat"), 8),
    "ComplexDouble": 16,
}
"""Bytes per item, by the class of a storage without the suffix Storage."""


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
    crc: int


def file_problems(path: Path, depth: Depth) -> Iterator[Problem]:
    """Yield the problems of a ``torch.save`` file; none if it is valid.

    Raises:
        OSError: the file cannot be read, or is not a regular file.

    """
    with opened(path) as window:
        yield from window_problems(window, depth)


def window_problems(window: Window, depth: Depth) -> Iterator[Problem]:
    """Yield the problems of the bytes of ``torch.save``: incomplete if they are truncated."""
    try:
        if window.size == 0:
            raise CutOff("is empty")
        if window.read(0, len(_LEGACY_START)) == _LEGACY_START:
            _check_legacy(window)
            return
        found = records(window)
        _check_storages(window, found)
        if depth is Depth.HASHES:
            _check_sums(window, found)
    except CutOff as error:
        yield incomplete(str(error))
    except InvalidTorchFile as error:
        yield damaged(str(error))


def is_torch_file(path: Path) -> bool:
    """Return whether a file starts with a signature of ``torch.save``.

    Raises:
        OSError: the file cannot be read, or is not a regular file.

    """
    with opened(path) as window:
        head = window.read(0, len(_LEGACY_START))
    return head.startswith(ZIP_START) or head == _LEGACY_START


def saved_object(path: Path) -> object:
    """Return the saved object as represented by ``pickles``, without tensor data.

    Raises:
        OSError: the file cannot be read, or is not a regular file.
        InvalidTorchFile: the file is not a valid ``torch.save`` file.

    """
    with opened(path) as window:
        if window.read(0, len(_LEGACY_START)) == _LEGACY_START:
            return _legacy_pickles(window)[3].value
        return _content(window, records(window)).value


def saved_number(path: Path, key: str) -> int | None:
    """Return the integer, or integer tensor, at a key of the saved dict; None if there is none."""
    value = saved_value(path, key)
    if isinstance(value, Built) and isinstance(value.args, tuple) and value.args:
        storage = value.args[0]
        try:
            own, count, width = _storage(storage.args if isinstance(storage, Built) else None)
            size = (count or 0) * (width or 0)
            with opened(path) as window:
                record = records(window).get(f"data/{own}")
                if record is None or size != record.size or size not in (4, 8):
                    return None
                return int.from_bytes(window.read(record.offset, size), "little", signed=True)
        except (OSError, InvalidTorchFile):
            return None
    return value if isinstance(value, int) else None


def saved_value(path: Path, key: str) -> object:
    """Return the value at a key of the saved dict; None if it cannot be read."""
    try:
        saved = saved_object(path)
    except (OSError, InvalidTorchFile):
        return None
    if isinstance(saved, Built) and saved.pairs is not None:
        return saved.pairs.get(key)
    return saved.get(key) if isinstance(saved, Pairs) else None


def storages(window: Window) -> Iterator[tuple[str, str, Window]]:
    """Yield tensor name, class such as ``FloatStorage``, and bytes of each storage in an archive.

    The legacy format has none. The name is the path of keys in the saved object.

    Raises:
        InvalidTorchFile: the archive is not valid.
        CannotVerify: its pickle is too large.

    """
    if window.read(0, len(ZIP_START)) != ZIP_START:
        return
    found = records(window)
    content = _content(window, found)
    names = _tensor_names(content.value)
    for one in {str(one): one for one in content.ids}.values():
        key, _, _ = _storage(one)
        kind = one[1] if isinstance(one, tuple) else None
        record = found.get(f"data/{key}")
        if record is not None and isinstance(kind, Global):
            yield (
                names.get(key, f"data/{key}"),
                kind.name,
                window.part(record.offset, record.size),
            )


def _tensor_names(value: object) -> dict[str, str]:
    """Return the first name of each storage in a saved object, by key."""
    names: dict[str, str] = {}
    pending: list[tuple[str, object]] = [("", value)]
    visited: set[int] = set()
    while pending:
        path, one = pending.pop()
        if id(one) in visited:
            continue
        if isinstance(one, Pairs | Built | list):
            visited.add(id(one))
        if isinstance(one, Pairs):
            pending += [(f"{path}.{key}" if path else str(key), each) for key, each in one[::-1]]
        elif isinstance(one, Built):
            pending += [(path, each) for each in (one.state, one.pairs, one.args)]
        elif isinstance(one, tuple) and len(one) >= 5 and one[0] == "storage":
            names.setdefault(str(one[2]), path)
        elif isinstance(one, tuple | list):
            pending += [(path, each) for each in one[::-1]]
    return names


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
    head = window.read(0, len(_LEGACY_START))
    is_begin = len(head) < len(_LEGACY_START) and _LEGACY_START.startswith(head)
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
    if fields[0] != b"PK\x01\x02" or method != 0 or packed != size:
        raise InvalidTorchFile("has a corrupt zip directory")
    local = window.read(header, _LOCAL.size)
    if len(local) < _LOCAL.size or not local.startswith(ZIP_START):
        raise InvalidTorchFile(f"has no header for record {name}")
    own_size, own_extra = _LOCAL.unpack(local)[9:]
    if window.read(header + _LOCAL.size, own_size) != raw:
        raise InvalidTorchFile(f"has a header with another name for record {name}")
    offset = header + _LOCAL.size + own_size + own_extra
    if offset + size > limit:
        raise InvalidTorchFile(f"has a record {name} that exceeds the file")
    return Record(name, offset, size, crc), begin + name_size + extra_size + comment_size


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


def _content(window: Window, found: dict[str, Record]) -> Loaded:
    record = found.get("data.pkl")
    if record is None:
        raise InvalidTorchFile("has no record data.pkl")
    if record.size > SIZE_LIMIT:
        raise CannotVerify("record data.pkl is too large to verify")
    try:
        return load(window.read(record.offset, record.size))
    except InvalidPickle as error:
        raise InvalidTorchFile(f"has an invalid record data.pkl: {error}") from error


def _check_storages(window: Window, found: dict[str, Record]) -> None:
    """Check that every storage in ``data.pkl`` has a record of the correct length."""
    for one in _content(window, found).ids:
        key, count, width = _storage(one)
        size = count * width if count is not None and width is not None else None
        record = found.get(f"data/{key}")
        if record is None:
            raise InvalidTorchFile(f"has no record data/{key}")
        if size is not None and record.size != size:
            raise InvalidTorchFile(
                f"has {record.size} bytes in record data/{key} instead of {size}"
            )


def _storage(one: object) -> tuple[str, int | None, int | None]:
    """Return key, items and bytes per item of the storage of a persistent ID; None: unknown."""
    if not isinstance(one, tuple) or len(one) < 5 or one[0] != "storage":
        raise InvalidTorchFile("has a reference in record data.pkl that is not a storage")
    _, kind, key, _, count = one[:5]
    width = None
    if isinstance(kind, Global):
        width = _ITEM_SIZES.get(kind.name.removesuffix("Storage"))
    return str(key), count if isinstance(count, int) else None, width


def _check_sums(window: Window, found: dict[str, Record]) -> None:
    """Check the CRC32 of every record; torch writes 0 for all records if checksums are off."""
    if not any(record.crc for record in found.values()):
        return
    for record in found.values():
        crc = size = 0
        for part in chunks(window.part(record.offset, record.size)):
            crc, size = zlib.crc32(part, crc), size + len(part)
        if size < record.size:
            raise InvalidTorchFile(f"has a record {record.name} that exceeds the file")
        if crc != record.crc:
            raise InvalidTorchFile(f"has a wrong checksum in record {record.name}")


def _check_legacy(window: Window) -> None:
    """Check the legacy format: five pickles, then per storage an 8-byte count and its items."""
    pickles = _legacy_pickles(window)
    at = pickles[4].end
    stored = {key: (count, width) for key, count, width in map(_storage, pickles[3].ids)}
    keys = pickles[4].value
    if not isinstance(keys, list) or {str(key) for key in keys} != stored.keys():
        raise InvalidTorchFile("has a list of storages that does not match its pickle")
    for key in map(str, keys):
        count, width = stored[key]
        if count is None or width is None:
            return
        head = window.read(at, 8)
        if len(head) == 8 and int.from_bytes(head, "little") != count:
            raise InvalidTorchFile(
                f"has a wrong number of items in storage {key}, expected {count}"
            )
        at += 8 + count * width
    if window.size != at:
        kind = CutOff if window.size < at else InvalidTorchFile
        raise kind(f"has {window.size} bytes instead of {at}")


def _legacy_pickles(window: Window) -> list[Loaded]:
    """Return the five pickles of the legacy format; the fourth is the saved object."""
    data = window.read(0, SIZE_LIMIT)
    at, pickles = 0, []
    try:
        for _ in range(5):
            pickles.append(load(data, at))
            at = pickles[-1].end
    except InvalidPickle as error:
        raise InvalidTorchFile(f"is truncated or corrupt: {error}") from error
    return pickles
