"""The page of the public Python API: each name with its docstring, its members and its fields."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum

import holdfast
from holdfast import testing


def lines(docs_of: Callable[[type], Mapping[str, str]]) -> Iterator[str]:
    """A section for each public name.

    Args:
        docs_of: the docstrings under the names of a class.

    """
    yield "[Extend Holdfast](../howto/extend.md) shows how to use them."
    for name in sorted(name for name in holdfast.__all__ if not name.startswith("_")):
        value = getattr(holdfast, name)
        yield from _section(name, value)
        if isinstance(value, type):
            yield from _table(_members(value, docs_of(value)))
    yield from ["", "## Contracts for tests: `holdfast.testing`", "", inspect.getdoc(testing) or ""]
    for name in sorted(testing.__all__):
        value = getattr(testing, name)
        yield from _section(name, value, level=3)
        if isinstance(value, type):
            yield from _table({**docs_of(value), **_methods(value)})


def _section(name: str, value: object, level: int = 2) -> Iterator[str]:
    is_function = inspect.isfunction(value)
    arguments = f"({', '.join(inspect.signature(value).parameters)})" if is_function else ""
    yield from ["", f"{'#' * level} `{name}{arguments}`", "", inspect.getdoc(value) or ""]


def _table(rows: Mapping[str, str]) -> Iterator[str]:
    if rows:
        yield from ["", "| Name | Meaning |", "|---|---|"]
    for name, meaning in rows.items():
        yield f"| `{name}` | {meaning.replace('|', chr(92) + '|')} |"


def _members(kind: type, docs: Mapping[str, str]) -> dict[str, str]:
    """Members of an enum, or fields of a dataclass, with their meaning."""
    if issubclass(kind, Enum):
        return {name: docs.get(name, "") or f"`{one.value}`" for name, one in _values(kind)}
    names = [field.name for field in fields(kind) if field.init] if is_dataclass(kind) else []
    return {name: docs.get(name, "") for name in names}


def _values(kind: type[Enum]) -> Iterator[tuple[str, Enum]]:
    yield from kind.__members__.items()


def _methods(kind: type) -> dict[str, str]:
    """Methods of a harness with their docstring, and tests of a contract, whose names say it."""
    return {
        name: " ".join((inspect.getdoc(one) or "").split())
        for name, one in vars(kind).items()
        if inspect.isfunction(one) and not name.startswith("_")
    }
