import subprocess
import sys

from chart import DEPLOY


def test_the_schema_of_the_values_is_what_the_code_reads() -> None:
    check = subprocess.run(
        [sys.executable, "tools/render_values_schema.py", "--check"],
        cwd=DEPLOY.parent,
        check=False,
        capture_output=True,
        encoding="utf-8",
    )

    assert (check.returncode, check.stdout + check.stderr) == (0, "")
