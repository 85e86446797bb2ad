"""The page of the public Python API: each name with its docstring, its members and its fields."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum

import holdfast


def lines(docs_of: Callable[[type], Mapping[str, str]]) -> Iterator[str]:
    """A section for each public name.

    Args:
        docs_of: the docstrings under the names of a class.

    """
    yield "[Extend Holdfast](../howto/extend.md) shows how to use them."
    for name in sorted(name for name in holdfast.__all__ if not name.startswith("_")):
        value = getattr(holdfast, name)
        title = (
            f"{name}({', '.join(inspect.signature(value).parameters)})"
            if (inspect.isfunction(value))
            else name
        )
        yield from ["", f"## `{title}`", "", inspect.getdoc(value) or ""]
        if isinstance(value, type):
            docs = docs_of(value)
            members = _members(value)
            if members:
                yield from ["", "| Name | Meaning |", "|---|---|"]
            for one in members:
                value_text = f"`{value[one].value}`" if issubclass(value, Enum) else ""
                meaning = docs.get(one, "") or value_text
                yield f"| `{one}` | {meaning.replace('|', chr(92) + '|')} |"


def _members(kind: type) -> list[str]:
    """Members of an enum, fields of a dataclass, methods of a protocol."""
    if issubclass(kind, Enum):
        return list(kind.__members__)
    return [field.name for field in fields(kind) if field.init] if is_dataclass(kind) else []
