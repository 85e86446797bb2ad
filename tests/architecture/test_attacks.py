"""The threat model names the test of each attack, and each test of an attack is named there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/explanation/security.md"
FOLDER = "tests/attack/"
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


def rows() -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Party, attack and tests of each row of the table."""
    text = PAGE.read_text(encoding="utf-8")
    section = text.partition("## Attacks and their tests\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]
    return [(party, attack, NAMED.findall(tests)) for party, attack, tests in cells]


@cache
def marked(file: str) -> dict[str, bool]:
    """Tests of a file, each with whether it has the marker."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {
        one.name: any(ast.unparse(mark) == "pytest.mark.attack" for mark in one.decorator_list)
        for one in tree.body
        if isinstance(one, ast.FunctionDef) and one.name.startswith("test_")
    }


def test_each_row_has_a_party_an_attack_and_a_test() -> None:
    assert rows()
    for party, attack, tests in rows():
        assert party
        assert attack
        assert tests, attack


@pytest.mark.parametrize("row", rows(), ids=[attack for _, attack, _ in rows()])
def test_each_named_test_exists_and_is_run_by_make_attack(
    row: tuple[str, str, list[tuple[str, str]]],
) -> None:
    for file, name in row[2]:
        assert (ROOT / file).is_file(), file
        if name:
            assert marked(file).get(name), f"{file}::{name} is not marked as an attack"
        else:
            assert file.startswith(FOLDER), f"name the tests of {file}"
            assert marked(file), file


def test_each_test_of_an_attack_is_named() -> None:
    named = {one for _, _, tests in rows() for one in tests}
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    assert files
    for path in files:
        file = path.relative_to(ROOT).as_posix()
        if file.startswith(FOLDER):
            assert (file, "") in named, f"{PAGE.name} does not name {file}"
        elif "mark.attack" in path.read_text(encoding="utf-8") and path != Path(__file__):
            missing = [one for one, is_one in marked(file).items() if is_one] or ["the marker"]
            missing = [one for one in missing if (file, one) not in named]
            assert not missing, f"{PAGE.name} does not name {file}::{missing}"
