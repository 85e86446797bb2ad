"""Saves of the real torch, killed at random moments."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "frameworks" / "killed_saves.py"


@pytest.mark.torch
def test_torch_loads_what_is_chosen_after_saves_that_were_killed(tmp_path: Path) -> None:
    pytest.importorskip("torch")

    command = [sys.executable, str(SCRIPT), str(tmp_path), "12"]
    done = subprocess.run(command, check=False, capture_output=True, encoding="utf-8")

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("12 kills") == 2
