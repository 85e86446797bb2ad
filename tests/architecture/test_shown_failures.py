"""A run that is ended from outside has shown its failures, and a broken file ends soon."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest
from failures import BrokenFiles

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


def report(nodeid: str, seconds: float, outcome: Literal["passed", "failed"]) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid, (nodeid, 0, nodeid), {}, outcome, None, "call", duration=seconds
    )


def test_a_file_whose_tests_wait_in_vain_is_not_run_further(request: pytest.FixtureRequest) -> None:
    files, item = BrokenFiles(), request.node
    others = [report("tests/other.py::test", 99, "failed") for _ in range(9)]
    passed = [report(item.nodeid, 99, "passed") for _ in range(9)]
    quick = [report(item.nodeid, 60, "failed") for _ in range(9)]
    for one in [*others, *passed, *quick, *[report(item.nodeid, 61, "failed")] * 2]:
        files.pytest_runtest_logreport(one)
    files.pytest_runtest_setup(item)

    files.pytest_runtest_logreport(report(item.nodeid, 61, "failed"))

    with pytest.raises(pytest.fail.Exception, match="not run: 3 tests of this file failed"):
        files.pytest_runtest_setup(item)
