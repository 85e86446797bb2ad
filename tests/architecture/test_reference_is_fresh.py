import subprocess
import sys

from source_tree import ROOT


def test_the_reference_pages_are_what_the_code_says() -> None:
    check = subprocess.run(
        [sys.executable, "tools/render_reference.py", "--check"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        encoding="utf-8",
    )

    assert check.returncode == 0, check.stdout + check.stderr
    assert check.stdout + check.stderr == ""
