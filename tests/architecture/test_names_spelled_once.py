import ast
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

from source_tree import FILES, relative, tree

from holdfast.model import names

SPELLED_IN = ("holdfast/model/names/", "holdfast/model/sagemaker.py")

PARTS = {value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
"""Labels and prefixes: must not occur, not even within a longer text."""

WORDS = {
    member.value
    for kind in vars(names).values()
    if isinstance(kind, type) and issubclass(kind, Enum)
    for member in kind
}
"""Conditions, reasons and label values: must not stand alone."""


def literals(path: Path) -> Iterator[tuple[int, str]]:
    """Text constants of a file, with their lines; docstrings left out."""
    module = tree(path)
    docs = {
        id(node.value)
        for node in ast.walk(module)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.lineno, node.value


def strays(path: Path) -> list[str]:
    return [
        f"{path.name}:{line}: {text!r}"
        for line, text in literals(path)
        if text in WORDS or any(part in text for part in PARTS)
    ]


def test_every_published_name_is_spelled_in_one_place() -> None:
    found = [
        stray
        for path in FILES
        if not relative(path).startswith(SPELLED_IN)
        for stray in strays(path)
    ]

    assert found == []


def test_a_stray_name_is_seen_and_a_docstring_is_not(tmp_path: Path) -> None:
    path = tmp_path / "stray.py"
    path.write_text(
        '"""NodeSilent"""\n'
        'reason = "NodeSilent"\n'
        'label = f"sagemaker.amazonaws.com/{reason}"\n'
        "class A:\n"
        "    x = 1\n"
        '    """NodeSilent"""\n',
        encoding="utf-8",
    )

    assert [stray.split(": ")[0] for stray in strays(path)] == ["stray.py:2", "stray.py:3"]
