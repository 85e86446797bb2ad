"""The page of the public Python API: each name with its docstring, its members and its fields."""

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Protocol

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
        if isinstance(value, ModuleType):
            yield from _module(name, value)
        if isinstance(value, type):
            yield from _table(_members(value, docs_of(value)))
    yield from ["", "## Contracts for tests: `holdfast.testing`", "", inspect.getdoc(testing) or ""]
    for name in sorted(testing.__all__):
        value = getattr(testing, name)
        yield from _section(name, value, level=3)
        if isinstance(value, type):
            yield from _table({**docs_of(value), **_methods(value)})


def _section(name: str, value: object, level: int = 2) -> Iterator[str]:
    yield from ["", f"{'#' * level} `{_title(name, value)}`", "", *_as_lists(value)]


def _title(name: str, value: object) -> str:
    if not inspect.isfunction(value):
        return name
    arguments = [one for one in inspect.signature(value).parameters if one != "self"]
    return f"{name}({', '.join(arguments)})"


def _table(rows: Mapping[str, str], title: str = "Name") -> Iterator[str]:
    if rows:
        yield from ["", f"| {title} | Meaning |", "|---|---|"]
    for name, meaning in rows.items():
        yield f"| `{name}` | {meaning.replace('|', chr(92) + '|')} |"


def _members(kind: type, docs: Mapping[str, str]) -> dict[str, str]:
    """Members of an enum, fields of a dataclass, methods of a protocol, each with its meaning."""
    if issubclass(kind, Enum):
        return {one.name: docs.get(one.name) or f"`{one.value}`" for one in kind}
    if is_dataclass(kind):
        return {field.name: docs.get(field.name, "") for field in fields(kind) if field.init}
    return _methods(kind) if issubclass(kind, Protocol) else {}  # type: ignore[arg-type]


def _methods(kind: type) -> dict[str, str]:
    """Methods with the summary of their docstring; tests with the law in their name."""
    return {
        _title(name, one): _summary(inspect.getdoc(one)) or _law(name)
        for name, one in vars(kind).items()
        if inspect.isfunction(one) and not name.startswith("_")
    }


def _law(name: str) -> str:
    """Return the sentence in the name of a test; empty for another method."""
    words = name.removeprefix("test_").replace("_", " ")
    return f"Test: {words}." if name.startswith("test_") else ""


def _module(name: str, module: ModuleType) -> Iterator[str]:
    """A section for each function of a package, and a table of the classes of its modules."""
    for own, function in sorted(inspect.getmembers(module, inspect.isfunction)):
        if function.__module__ == module.__name__ and not own.startswith("_"):
            yield from _section(f"{name}.{own}", function, level=3)
    classes = {}
    for path in sorted(Path(str(module.__file__)).parent.glob("[!_]*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):  # not imported: its framework may be missing
                title = f"{module.__name__}.{path.stem}.{node.name}"
                classes[title] = _summary(ast.get_docstring(node))
    yield from _table(classes, "Class")


def _as_lists(value: object) -> Iterator[str]:
    """The docstring, with arguments and errors as lists."""
    for line in (inspect.getdoc(value) or "").splitlines():
        if line in ("Args:", "Raises:"):
            yield from [{"Args:": "Arguments:", "Raises:": "Errors:"}[line], ""]
        elif line.startswith("    ") and line[4] != " ":
            yield f"- `{line.strip().replace(':', '`:', 1)}"
        else:
            yield line.removeprefix("      ")


def _summary(doc: str | None) -> str:
    return " ".join((doc or "").partition("\n\n")[0].split()).replace("``", "`")
