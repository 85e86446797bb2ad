import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from source_tree import ROOT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """As much of a fresh checkout as setting up needs before it installs anything."""
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    return tmp_path


def set_up(checkout: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["tools/venv.sh", "demo"],
        cwd=checkout,
        env={**os.environ, **environment},
        check=False,
        capture_output=True,
        encoding="utf-8",
    )


def test_make_alone_lists_every_target_with_a_line_about_it() -> None:
    listed = subprocess.run(
        ["make", "--no-print-directory"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        encoding="utf-8",
    ).stdout

    phony = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert phony is not None
    assert set(re.findall(r"^  make ([\w-]+) +\S", listed, re.MULTILINE)) == set(phony[1].split())


def test_without_a_python_that_is_new_enough_nothing_is_made(checkout: Path) -> None:
    done = set_up(checkout, PYTHON="/nonexistent/python")

    assert done.returncode == 1
    assert "Holdfast needs Python 3.11 or newer; /nonexistent/python is older or missing" in (
        done.stderr
    )
    assert not (checkout / ".venv").exists()


def test_a_python_without_venv_is_shown_what_to_install(checkout: Path) -> None:
    broken = checkout / "broken" / "venv"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError", encoding="utf-8")

    done = set_up(checkout, PYTHON=sys.executable, PYTHONPATH=str(broken.parent))

    assert done.returncode == 1
    assert "apt install python3-venv" in done.stderr
    assert not (checkout / ".venv").exists()
