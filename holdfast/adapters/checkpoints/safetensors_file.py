"""Verifies safetensors files by their JSON header and the file length that follows from it.

The format has no checksum: a flipped bit or a block of zeros in a tensor cannot be detected.
https://github.com/huggingface/safetensors describes the format.
"""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from holdfast.adapters.checkpoints.contract import CannotVerify, damaged, incomplete
from holdfast.adapters.checkpoints.plain_files import JSON_LIMIT, Window, opened
from holdfast.kit.bounded_files import parse_json
from holdfast.model.checkpoints import Problem

_HEADER_LIMIT: Final = 100_000_000
"""Maximum header size that the library accepts, in bytes; 1 MB describes some 10,000 tensors."""

_BITS: Final = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0"), 8),
    **dict.fromkeys(("F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 64),
    "C128": 128,
}  # fmt: skip
"""Bits per item by type."""


class BadHeader(Exception):
    """The header does not match the file; the message gives the reason."""


class TooShort(BadHeader):
    """The file is shorter than its header specifies."""


def file_problems(path: Path) -> Iterator[Problem]:
    """Yield the problems of a safetensors file; none if its header and length match.

    Raises:
        OSError: the file cannot be read, or is not a regular file.

    """
    with opened(path) as window:
        yield from window_problems(window)


def window_problems(window: Window) -> Iterator[Problem]:
    """Yield the problems of a range of bytes that is a safetensors file."""
    try:
        _check(window)
    except TooShort as error:
        yield incomplete(str(error))
    except BadHeader as error:
        yield damaged(str(error))


def tensor_names(path: Path) -> set[str]:
    """Return the names of the tensors in a file.

    Raises:
        OSError: the file cannot be read, or is not a regular file.
        BadHeader: the file is not a safetensors file.

    """
    with opened(path) as window:
        return set(_header(window)[0])


def tensors(window: Window) -> Iterator[tuple[str, str, Window]]:
    """Yield name, type such as ``BF16``, and bytes of each tensor.

    Raises:
        BadHeader: the file is not a safetensors file.
        CannotVerify: its header is too large.

    """
    header, begin = _header(window)
    for name, one in header.items():
        start, end = _range(name, one)
        yield name, str(one["dtype"]), window.part(begin + start, end - start)


def _check(window: Window) -> None:
    tensors, begin = _header(window)
    ranges = sorted(_range(name, one) for name, one in tensors.items())
    if ranges and ranges[0][0] != 0:
        raise BadHeader("has a header whose tensors do not begin at 0")
    for (_, end), (start, _) in pairwise(ranges):
        if start != end:
            raise BadHeader("has a header whose tensors do not follow each other")
    expected = begin + (ranges[-1][1] if ranges else 0)
    if expected != window.size:
        kind = TooShort if window.size < expected else BadHeader
        raise kind(f"has {window.size} bytes instead of {expected}")


def _header(window: Window) -> tuple[dict[str, Any], int]:
    """Return the tensors by name, and the offset of the first byte after the header."""
    if window.size == 0:
        raise TooShort("is empty")
    size = int.from_bytes(window.read(0, 8), "little")
    if window.size < 8:
        raise TooShort("header is truncated")
    if size > _HEADER_LIMIT:
        raise BadHeader("is not a safetensors file")
    if 8 + size > window.size:
        raise _short_header(window)
    if size > JSON_LIMIT:
        raise CannotVerify(f"safetensors header is larger than {JSON_LIMIT >> 20} MiB")
    try:
        header = parse_json(window.read(8, size))
    except ValueError as error:
        raise BadHeader("has a header that is not valid JSON") from error
    if not isinstance(header, dict):
        raise BadHeader("has a header that is not a JSON object")
    header.pop("__metadata__", None)
    return header, 8 + size


def _short_header(window: Window) -> BadHeader:
    """Return why a header is longer than the file: cut off, or complete with a wrong length."""
    text = window.read(8, JSON_LIMIT).decode("latin-1")
    try:
        json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        if not text or text.startswith("{"):
            return TooShort("header is truncated")
        return BadHeader("is not a safetensors file")
    return BadHeader("has a header with a wrong length")


def _range(name: str, one: object) -> tuple[int, int]:
    """Return the start and end of a tensor, relative to the end of the header."""
    try:
        bits, shape, (begin, end) = _BITS.get(one["dtype"]), one["shape"], one["data_offsets"]  # type: ignore[index]
        items = 1
        for length in shape:
            items *= length
            if not 0 <= items < 1 << 62:
                raise ValueError(name)
        fits = bits is None or (end - begin) * 8 == items * bits
        if not 0 <= begin <= end < 1 << 62 or not fits:
            raise ValueError(name)
    except (TypeError, KeyError, ValueError) as error:
        raise BadHeader(f"has a header that does not describe {name[:80]!r}") from error
    return begin, end
