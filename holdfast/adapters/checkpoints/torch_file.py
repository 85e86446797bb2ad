"""Verifies ``torch.save`` files, without torch and without unpickling.

Since PyTorch 1.6 such a file is a zip archive, with ``data.pkl`` and one ``data/<key>`` per storage
among its members. ``torch.load`` does not verify the CRC32 of members. The legacy format is five
pickles followed by the storages, without any checksum.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.contract import CannotVerify, damaged, incomplete, unknown
from holdfast.adapters.checkpoints.other_zip import is_other_zip
from holdfast.adapters.checkpoints.pickles import (
    SIZE_LIMIT,
    Built,
    Global,
    InvalidPickle,
    Loaded,
    Pairs,
    PickleTooLarge,
    load,
)
from holdfast.adapters.checkpoints.plain_files import Window, opened
from holdfast.adapters.checkpoints.torch_archive import (
    LEGACY_START,
    ZIP_START,
    CutOff,
    InvalidTorchFile,
    Record,
    check_sums,
    records,
)
from holdfast.model.checkpoints import Depth, Problem

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


def file_problems(path: Path, depth: Depth, *, may_be_other: bool = False) -> Iterator[Problem]:
    """Yield the problems of a ``torch.save`` file; none if it is valid.

    Args:
        path: the file.
        depth: depth of the verification.
        may_be_other: whether another library may have written it: its name is that of a script. A
            whole zip archive without members of torch is then unknown.

    Raises:
        OSError: the file cannot be read, or is not a regular file.

    """
    with opened(path) as window:
        problem = next(window_problems(window, depth), None)
        if problem is not None:
            is_other = may_be_other and is_other_zip(window)
            yield unknown("is a zip archive that torch.save did not write") if is_other else problem


def window_problems(window: Window, depth: Depth) -> Iterator[Problem]:
    """Yield the problem of the bytes of ``torch.save``: incomplete if they are truncated."""
    try:
        if window.size == 0:
            raise CutOff("is empty")
        if window.read(0, len(LEGACY_START)) == LEGACY_START:
            _check_legacy(window)
            return
        found = records(window)
        _check_storages(window, found)
        if depth is Depth.HASHES:
            check_sums(window, found)
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
        head = window.read(0, len(LEGACY_START))
    return head.startswith(ZIP_START) or head == LEGACY_START


def saved_object(path: Path) -> object:
    """Return the saved object as represented by ``pickles``, without tensor data.

    Raises:
        OSError: the file cannot be read, or is not a regular file.
        InvalidTorchFile: the file is not a valid ``torch.save`` file.
        CannotVerify: its pickle is too large.

    """
    with opened(path) as window:
        if window.read(0, len(LEGACY_START)) == LEGACY_START:
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
    except (OSError, InvalidTorchFile, CannotVerify):
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


def _content(window: Window, found: dict[str, Record]) -> Loaded:
    record = found.get("data.pkl")
    if record is None:
        raise InvalidTorchFile("has no record data.pkl")
    if record.size > SIZE_LIMIT:
        raise CannotVerify("record data.pkl is too large to verify")
    try:
        return load(window.read(record.offset, record.size))
    except PickleTooLarge as error:
        raise CannotVerify("record data.pkl is too large to verify") from error
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
    except PickleTooLarge as error:
        raise CannotVerify("its pickle is too large to verify") from error
    except InvalidPickle as error:
        raise InvalidTorchFile(f"is truncated or corrupt: {error}") from error
    return pickles
