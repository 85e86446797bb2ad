"""Conversion of TOML to frozen dataclasses; all problems are reported at once."""

import difflib
import math
import os
import sys
import tomllib
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from holdfast.kit.units import parse_duration
from holdfast.model.errors import ConfigError

T = TypeVar("T")

FILE_LIMIT: Final = 1 << 20
"""Bytes of a configuration file; the largest of our own has 20,000."""

_EXPECTED: Final = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text in quotes",
    Path: "a path in quotes",
    timedelta: "a duration such as 90s, 15m or 1h30m in quotes",
    datetime: "a time with its zone (RFC 3339) such as 2026-01-31T12:00:00Z",
}


def load_config(
    path: Path, schema: type[T], *, check: Callable[[os.stat_result], str] = lambda _: ""
) -> T:
    """Read a TOML file into ``schema``, as ``parse_table`` does.

    Args:
        path: the file.
        schema: what it contains.
        check: returns why the file that was opened must not be read; empty if it may.

    Raises:
        ConfigError: the file cannot be read, is not TOML, or does not match; each problem begins
            with the path.

    """
    try:
        return parse_table(_read_toml(path, check), schema)
    except ConfigError as error:
        raise ConfigError(f"{path}: {problem}" for problem in error.problems) from None


def parse_table(table: Mapping[str, object], schema: type[T]) -> T:
    """Read a table into the frozen dataclass ``schema``.

    The type of each field defines what is expected: ``bool``, ``int``, ``float`` (accepts whole
    numbers, too), ``str``, ``Path``, ``timedelta`` (a text such as ``"15m"``), ``datetime`` (TOML's
    time with a zone, or the same as a text; it is returned in UTC), an enum (one of its
    values), a class with ``parse(value)`` that raises ``ValueError``, another such dataclass (a
    table), a ``tuple[X, ...]`` of any of these (an array), a ``dict[str, X]`` of any of these (a
    table with keys of any name), or any of these with ``| None``. An optional key has a default. A
    ``ValueError`` of ``__post_init__`` is a problem of its table.

    Raises:
        ConfigError: with one line for each problem: the dotted key, the value, what was expected.

    """
    reader = _Reader()
    value = reader.table(schema, table, "")
    if reader.problems:
        raise ConfigError(reader.problems)
    return value  # type: ignore[no-any-return]


def _read_toml(path: Path, check: Callable[[os.stat_result], str]) -> Mapping[str, object]:
    try:
        with path.open("rb") as file:  # may be a link, as in a ConfigMap, or a pipe
            if problem := check(os.fstat(file.fileno())):
                raise ConfigError(problem)
            data = file.read(FILE_LIMIT + 1)
        if len(data) > FILE_LIMIT:
            raise ConfigError(f"larger than {FILE_LIMIT} bytes: is it a configuration file?")
        return tomllib.loads(data.decode("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"line {line} is not UTF-8 text") from error
    except (ValueError, RecursionError) as error:  # the message ends with line and column
        raise ConfigError(f"not TOML: {error}") from error


_hints = cache(get_type_hints)


class _Reader:
    """Reads values and collects problems; a value that could not be read is None."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def table(self, schema: Any, table: Mapping[str, object], path: str) -> Any:
        """Return a dataclass from a table; ``path`` ends with a dot unless it is empty."""
        known = len(self.problems)
        hints = _hints(schema)
        names = [field.name for field in fields(schema)]
        for key in table:
            if key not in names:
                self._unknown(path, key, names)
        for field in fields(schema):
            if field.name not in table and field.default is field.default_factory is MISSING:
                expected = _expected(hints[field.name])
                self.problems.append(f"{path}{field.name}: missing, expected {expected}")
        values = {
            name: self._value(hints[name], table[name], path + name)
            for name in names
            if name in table
        }
        if len(self.problems) > known:
            return None
        try:
            return schema(**values)
        except ValueError as error:
            where = f"{path.removesuffix('.')}: " if path else ""
            self.problems.append(f"{where}{error}")

    def _value(self, kind: Any, value: object, path: str) -> Any:
        if get_origin(kind) in (Union, types.UnionType):
            kind = _without_none(kind)
        if get_origin(kind) is tuple and isinstance(value, list):
            item = get_args(kind)[0]
            return tuple(self._value(item, one, f"{path}[{n}]") for n, one in enumerate(value))
        if get_origin(kind) is dict and isinstance(value, dict):
            item = get_args(kind)[1]
            return {key: self._value(item, one, f"{path}.{key}") for key, one in value.items()}
        if is_dataclass(kind) and isinstance(value, dict) and not hasattr(kind, "parse"):
            return self.table(kind, value, f"{path}.")
        try:
            return _scalar(kind, value)
        except ValueError as error:
            self.problems.append(f"{path}: {error}")

    def _unknown(self, path: str, key: str, names: Iterable[str]) -> None:
        near = difflib.get_close_matches(key, names, n=1)
        hint = (
            f" (did you mean {path}{near[0]}?)" if near else f"; expected one of {', '.join(names)}"
        )
        self.problems.append(f"{path}{key}: unknown key{hint}")


def _scalar(kind: Any, value: object) -> Any:
    if hasattr(kind, "parse"):
        return kind.parse(value)
    if kind is timedelta and isinstance(value, str):
        return parse_duration(value)
    if kind is datetime and (at := _moment(value)) is not None:
        return at
    if kind is Path and isinstance(value, str) and value and "\0" not in value:
        return Path(value)
    if kind is float and type(value) is int and abs(value) <= sys.float_info.max:
        return float(value)
    is_plain = kind in _EXPECTED and kind is not datetime
    if is_plain and type(value) is kind and not _is_endless(value):
        return value
    if isinstance(kind, type) and issubclass(kind, Enum) and value in _values(kind):
        return kind(value)
    raise ValueError(f"expected {_expected(kind)}, got {_shown(value)}")


def _moment(value: object) -> datetime | None:
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else value
        return at.astimezone(UTC) if isinstance(at, datetime) and at.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def _is_endless(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _expected(kind: Any) -> str:
    if get_origin(kind) in (Union, types.UnionType):
        kind = _without_none(kind)
    if get_origin(kind) is tuple:
        return "an array"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "one of " + ", ".join(f'"{value}"' for value in _values(kind))
    if hasattr(kind, "parse"):
        return f"a {kind.__name__.lower()}"
    return _EXPECTED.get(kind, "a table")


def _shown(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case dict():
            return "a table"
        case list():
            return "an array"
        case str():
            return repr(value)
    return str(value)


def _values(kind: type[Enum]) -> list[Any]:
    return [member.value for member in kind]


def _without_none(kind: Any) -> Any:
    return next(arg for arg in get_args(kind) if arg is not types.NoneType)
