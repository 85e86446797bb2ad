"""Finds NaN and infinity in little-endian floating-point numbers, at the speed of memory.

Such a number has all bits of its exponent set. A chunk whose high bytes never have the seven bits
of the exponent that they hold all set is finite; only the other chunks, which are rare in weights,
are looked at number by number.
"""

import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from holdfast.adapters.checkpoints.plain_files import CHUNK, Window


@dataclass(frozen=True, slots=True)
class FloatKind:
    """Layout of a floating-point type."""

    width: int
    """Bytes per number."""

    exponent: int
    """Bits of the exponent, all set: the infinity of the type, as an unsigned integer."""

    @property
    def suspicious(self) -> bytes:
        """High bytes that a number which is not finite may have."""
        mask = self.exponent >> (8 * (self.width - 1))
        return bytes(byte for byte in range(256) if byte & mask == mask)


F16: Final = FloatKind(2, 0x7C00)
BF16: Final = FloatKind(2, 0x7F80)
F32: Final = FloatKind(4, 0x7F80_0000)
F64: Final = FloatKind(8, 0x7FF0_0000_0000_0000)

_UNSIGNED: Final = {2: "H", 4: "I", 8: "Q"}


@dataclass(frozen=True, slots=True)
class Nonfinite:
    """What was found."""

    has_nan: bool = False
    has_infinity: bool = False


def scan(window: Window, kind: FloatKind) -> Nonfinite:
    """Return whether a tensor contains NaN or infinity; stops at the first NaN.

    Args:
        window: bytes of the tensor.
        kind: type of its numbers.

    """
    has_infinity = False
    for data in _chunks(window, kind.width):
        if not data[kind.width - 1 :: kind.width].translate(None, _FINITE[kind]):
            continue
        found = _examined(data, kind)
        if found.has_nan:
            return found
        has_infinity |= found.has_infinity
    return Nonfinite(has_infinity=has_infinity)


_FINITE: Final = {
    kind: bytes(set(range(256)) - set(kind.suspicious)) for kind in (F16, BF16, F32, F64)
}
"""High bytes of finite numbers."""


def _chunks(window: Window, width: int) -> Iterator[bytes]:
    for offset in range(0, window.size, CHUNK):
        data = window.read(offset, CHUNK)
        yield data[: len(data) // width * width]


def _examined(data: bytes, kind: FloatKind) -> Nonfinite:
    numbers = array(_UNSIGNED[kind.width], data)
    if sys.byteorder == "big":
        numbers.byteswap()
    sign = 1 << (8 * kind.width - 1)
    highest = max(number & ~sign for number in numbers)
    return Nonfinite(
        has_nan=highest > kind.exponent,
        has_infinity=any(number & ~sign == kind.exponent for number in numbers),
    )
