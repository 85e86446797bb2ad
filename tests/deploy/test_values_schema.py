import subprocess
import sys

import pytest
from chart import DEPLOY


@pytest.mark.parametrize("tool", ["render_values_schema.py", "render_chart_lists.py"])
def test_what_the_chart_takes_from_the_code_is_fresh(tool: str) -> None:
    check = subprocess.run(
        [sys.executable, f"tools/{tool}", "--check"],
        cwd=DEPLOY.parent,
        check=False,
        capture_output=True,
        encoding="utf-8",
    )

    assert check.returncode == 0, check.stdout + check.stderr
