"""The package's source as syntax trees, for the tests beside this file."""

import ast
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "holdfast"

CHECKED = (PACKAGE, *(ROOT / "tests" / name for name in ("engines", "ports", "simulation")))
"""The product, and what its tests and benchmarks are built on."""

FILES = sorted(path for folder in CHECKED for path in folder.rglob("*.py"))


def relative(path: Path) -> str:
    """The name of a file as it is written in the tables of the tests."""
    return path.relative_to(ROOT).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a file, parsed once for all tests of a process."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@cache
def walk_package() -> tuple[tuple[str, ast.AST], ...]:
    """Return every node of every syntax tree, with the name of its file."""
    return tuple(
        (name, node)
        for name, path in ((relative(path), path) for path in FILES)
        for node in ast.walk(tree(path))
    )


def project() -> dict[str, Any]:
    """pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
