"""Conversion of frozen dataclasses to plain JSON values and back."""

import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from holdfast.kit.bounded_files import parse_json

T = TypeVar("T")

_EARLIEST: Final = datetime(2000, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime(2200, 1, 1, tzinfo=UTC)
"""Latest accepted time; later ones are mistakes, and adding a timeout could overflow."""

_READERS: Final[Mapping[Any, Callable[[Any], Any]]] = {
    datetime: datetime.fromisoformat,
    timedelta: lambda seconds: timedelta(seconds=seconds),
    object: lambda plain: plain,  # kept as it is
}


def to_plain(value: object) -> Any:
    """Convert a value to what ``json.dumps`` accepts.

    Times become ISO 8601 in UTC, durations seconds, enums their value; fields with their default
    value are kept, so that the text can be read without the code.
    """
    match value:
        case Enum():
            return value.value
        case datetime():
            return value.astimezone(UTC).isoformat()
        case timedelta():
            return value.total_seconds()
        case None | bool() | int() | float() | str():
            return value
        case tuple() | list():
            return [to_plain(item) for item in value]
        case frozenset() | set():
            return sorted(to_plain(item) for item in value)
        case Mapping():
            return {str(key): to_plain(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    raise TypeError(f"{type(value).__name__} cannot be serialized")


def from_plain(kind: type[T], value: Any) -> T:
    """Convert the output of ``to_plain`` to a value of type ``kind``.

    Unknown fields are ignored and missing ones get their default, so that a newer or older release
    can read the same text.

    Raises:
        ValueError: the text does not hold such a value.

    """
    try:
        return _read(kind, value)  # type: ignore[no-any-return]
    except (TypeError, KeyError, AttributeError, OverflowError) as error:
        raise ValueError(f"not a {kind.__name__}: {error}") from error


def parse_value(kind: type[T], text: str | bytes) -> T:
    """Return a value of ``kind`` from JSON that a less trusted party may have written.

    Raises:
        ValueError: the text is not such a value, nests too deeply (``MAX_DEPTH``), or has a time
            without a zone or outside of the years 2000 to 2199.

    """
    return checked_value(kind, parse_json(text))


def checked_value(kind: type[T], plain: object) -> T:
    """Return a value of ``kind``, as ``parse_value`` does, from parsed JSON.

    Raises:
        ValueError: see ``parse_value``.

    """
    value = from_plain(kind, plain)
    for time in _times(value):
        if time.tzinfo is None or not _EARLIEST <= time <= _LATEST:
            raise ValueError(
                f"invalid {kind.__name__}: {time} has no zone or is not in the years 2000 to 2199"
            )
    return value


def _times(value: Any) -> Iterator[datetime]:
    if isinstance(value, datetime):
        yield value
    elif isinstance(value, tuple | frozenset):
        for item in value:
            yield from _times(item)
    elif isinstance(value, Mapping):
        yield from _times(tuple(value.values()))
    elif is_dataclass(value):
        for one in fields(value):
            yield from _times(getattr(value, one.name))


def _read(kind: Any, value: Any) -> Any:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return None if value is None else _read(_non_optional(kind), value)
    if origin is tuple:
        return tuple(_read(get_args(kind)[0], item) for item in value)
    if origin is Mapping:
        return {str(key): _read(get_args(kind)[1], item) for key, item in value.items()}
    if origin is frozenset:
        return frozenset(_read(get_args(kind)[0], item) for item in value)
    if kind in _READERS:
        return _READERS[kind](value)
    if kind is float and type(value) is int:
        return float(value)
    if is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise TypeError(f"expected a mapping, got {value!r}")
        hints = _hints(kind)  # type: ignore[arg-type]
        return kind(**{name: _read(hints[name], value[name]) for name in hints if name in value})  # type: ignore[operator]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"expected {kind.__name__}, got {value!r}")
    return value


def _non_optional(kind: Any) -> Any:
    return next(arg for arg in get_args(kind) if arg is not type(None))


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}
