import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = [Path(__file__).parents[1] / name for name in ("conftest.py", "effort.py", "failures.py")]

TESTS = {
    "test_part.py": """
import pytest

def test_skips():
    pytest.skip("no engine")

@pytest.mark.gpu
def test_needs_gpu():
    pytest.skip("no GPU")

@pytest.mark.xfail(strict=True)
def test_is_known_to_fail():
    assert False
""",
    "test_whole.py": """
import pytest

pytest.importorskip("a_module_that_is_nowhere")
""",
}


def run_tests(folder: Path, require_all: str) -> str:
    for name, text in TESTS.items():
        (folder / name).write_text(text, encoding="utf-8")
    for path in PLUGIN:
        shutil.copy(path, folder)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = gpu: x\n", encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-ra", "--continue-on-collection-errors"],
        check=False,
        cwd=folder,
        env={**os.environ, "HOLDFAST_REQUIRE_ALL": require_all},
        capture_output=True,
        encoding="utf-8",
    ).stdout


def test_skips_fail_where_everything_is_required(tmp_path: Path) -> None:
    output = run_tests(tmp_path, "1")

    assert "skipped although HOLDFAST_REQUIRE_ALL=1: Skipped: no engine" in output
    assert "skipped although HOLDFAST_REQUIRE_ALL=1: Skipped: could not import" in output
    assert "1 skipped" in output.splitlines()[-1]  # only the one that needs a GPU


@pytest.mark.parametrize("require_all", ["", "0"])
def test_skips_stay_skips_elsewhere(tmp_path: Path, require_all: str) -> None:
    output = run_tests(tmp_path, require_all)

    assert output.splitlines()[-1].strip("= ").startswith("3 skipped, 1 xfailed")
