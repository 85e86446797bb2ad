"""A run that is ended from outside prints no summary: what failed was shown before."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

PLUGIN = [Path(__file__).parents[1] / name for name in ("conftest.py", "effort.py", "failures.py")]

TESTS = """
import os
import signal

import pytest


@pytest.fixture
def engine():
    yield
    raise RuntimeError("nodes are not Ready")


def test_passes(engine):
    pass


def test_fails():
    assert 1 + 1 == 3


def test_does_not_return():
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_failures_of_a_killed_run_were_shown(tmp_path: Path) -> None:
    (tmp_path / "test_part.py").write_text(TESTS, encoding="utf-8")
    for path in PLUGIN:
        shutil.copy(path, tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest"],
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        capture_output=True,
        encoding="utf-8",
    )

    assert done.returncode == -signal.SIGKILL
    assert "FAILED test_part.py::test_passes (teardown of " in done.stdout
    assert "RuntimeError: nodes are not Ready" in done.stdout
    assert "FAILED test_part.py::test_fails (call of " in done.stdout
    assert "assert (1 + 1) == 3" in done.stdout
