"""The suites of `tests/conftest.py` are complete only if no test evades its fixtures."""

import ast
import re
import subprocess
import sys
from pathlib import Path

from source_tree import ROOT

TESTS = ROOT / "tests"
BUILDS = {
    TESTS / "conftest.py",
    TESTS / "kubernetes/test_program_build.py",
    TESTS / "chaos/__main__.py",
    TESTS / "realnodes/ten_minutes.py",
}
"""The fixture `built`, the tests of the build, `make chaos` and `make cluster`."""


def imported_from(path: Path, module: str) -> set[tuple[str, str]]:
    """Pairs of module and name that a file imports, if it mentions the module at all."""
    text = path.read_text("utf-8")
    if module not in text:
        return set()
    tree = ast.parse(text)
    return {
        (node.module or "", alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_programs_are_built_by_a_fixture_only_so_that_make_test_builds_none() -> None:
    module, build = "tools.control_plane", "provide"

    found = {path for path in TESTS.rglob("*.py") if (module, build) in imported_from(path, module)}
    assert found == BUILDS


def test_nothing_is_imported_from_conftest_which_means_another_file_in_each_folder() -> None:
    modules = {
        path: {module for module, _ in imported_from(path, "conftest")}
        for path in TESTS.rglob("*.py")
    }

    assert [path for path, names in modules.items() if "conftest" in names] == []


def test_make_has_a_target_for_each_suite_that_a_run_lists_as_not_run() -> None:
    options = ("--suite", "python", "--collect-only", "-q", "-p", "no:cacheprovider")
    listed = subprocess.run(
        [sys.executable, "-m", "pytest", *options, __file__],
        cwd=ROOT,
        check=True,
        capture_output=True,
        encoding="utf-8",
    ).stdout

    commands = re.findall(r"^\w+ +make ([\w-]+)$", listed, re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = re.findall(r"^([\w-]+):", makefile, re.MULTILINE)
    assert {"test-kubernetes", "test-all"} <= set(commands) <= set(targets)
    # With a blank, pytest would take a suite for the folder of that name, such as tools.
    suites = dict(re.findall(r"^test-(\w+):.*\n\t@.* --suite=(\w+) ", makefile, re.MULTILINE))
    assert {f"test-{name}" for name in suites} == {*commands} - {"test", "test-all"}
    assert suites == {name: name for name in suites}


def test_each_test_file_has_a_name_of_its_own() -> None:
    # Folders of tests are no packages: pytest collects only one of two modules of a name.
    names = [path.name for path in TESTS.rglob("test_*.py")]

    assert sorted(names) == sorted(set(names))
