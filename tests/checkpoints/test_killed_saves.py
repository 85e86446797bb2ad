"""Saves of real frameworks, killed at random moments, or to a disk that gets full."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from effort import examples

SCRIPTS = Path(__file__).parent / "frameworks"

RUNS = [("killed_saves.py", "kills", 120), ("full_disk_saves.py", "full disks", 100)]

if importlib.util.find_spec("nvidia_resiliency_ext") is not None:  # not in `make frameworks`
    RUNS.append(("killed_nvrx_saves.py", "kills", 50))


@pytest.mark.torch
@pytest.mark.parametrize(("script", "what", "rounds"), RUNS)
def test_torch_loads_what_is_chosen_after_saves_that_failed(
    tmp_path: Path, script: str, what: str, rounds: int
) -> None:
    pytest.importorskip("torch")
    rounds = examples(rounds)

    command = [sys.executable, str(SCRIPTS / script), str(tmp_path), str(rounds)]
    done = subprocess.run(command, check=False, capture_output=True, encoding="utf-8")

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(f"{rounds} {what}") == 2
