import ast
import re

import pytest
from source_tree import FILES, PACKAGE, relative, walk_package

FILE_LINES = 400
FUNCTION_LINES = 40

FORBIDDEN = frozenset(
    ("utils", "helpers", "common", "manager", "service", "base", "impl", "misc", "processor")
)
"""Words that say nothing about what is inside."""


def words(name: str) -> set[str]:
    """The words of a file name or of a class name, in lower case, also in the singular."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return {part.lower() for part in parts}


def file_lengths() -> dict[str, int]:
    return {relative(path): len(path.read_text("utf-8").splitlines()) for path in FILES}


def test_files_are_short() -> None:
    too_long = {name: lines for name, lines in file_lengths().items() if lines > FILE_LINES}

    assert too_long == {}


Function = ast.FunctionDef | ast.AsyncFunctionDef


def code_lines(function: Function) -> int:
    """Lines from the first statement to the last; the signature and the docstring are free."""
    has_docstring = ast.get_docstring(function) is not None
    code = function.body[1:] if has_docstring else function.body
    return code[-1].end_lineno - code[0].lineno + 1 if code else 0


def test_functions_are_short() -> None:
    lengths = {
        f"{file}:{node.lineno} {node.name}": code_lines(node)
        for file, node in walk_package()
        if isinstance(node, Function)
    }

    assert {name: lines for name, lines in lengths.items() if lines > FUNCTION_LINES} == {}


def test_names_of_files_and_folders_say_what_is_inside() -> None:
    paths = [*PACKAGE.rglob("*.py"), *(path for path in PACKAGE.rglob("*") if path.is_dir())]

    assert [path for path in paths if words(path.stem) & FORBIDDEN] == []


def test_names_of_classes_say_what_they_are() -> None:
    named = [(file, node.name) for file, node in walk_package() if isinstance(node, ast.ClassDef)]

    assert [(file, name) for file, name in named if words(name) & FORBIDDEN] == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NodeManager", {"node", "manager"}),
        ("node_utils", {"node", "utils"}),
        ("GPUServiceXML", {"gpu", "service", "xml"}),
        ("database", {"database"}),
    ],
)
def test_words_of_a_name(name: str, expected: set[str]) -> None:
    assert words(name) == expected
