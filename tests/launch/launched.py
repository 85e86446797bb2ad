"""Runs ``holdfast launch`` with scripts, and looks at its processes."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from holdfast.kit.processes import descendants

needs_py_spy = pytest.mark.skipif(
    not Path(sys.executable).with_name("py-spy").exists() or os.geteuid() != 0,
    reason="py-spy is not installed, or may not read other processes",
)

LIMIT_S = 180
TORCH_LIMIT_S = 500
"""For a machine that is busy with other tests."""


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "holdfast", "launch", *map(str, arguments)]


def clean_environment(**variables: str) -> dict[str, str]:
    """The environment without what a launcher or a platform may have set."""
    known = ("PET_", "HOLDFAST_", "SLURM_", "MASTER_", "TORCHELASTIC_", "CUDA_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(known)}
    return {**kept, **variables}


def launch(
    *arguments: object, limit_s: float = LIMIT_S, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run to the end."""
    return subprocess.run(
        command(*arguments),
        env=clean_environment(**variables),
        capture_output=True,
        check=False,
        encoding="utf-8",
        timeout=limit_s,
    )


def start(*arguments: object, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*arguments),
        env=clean_environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )


def wait_for(condition: Callable[[], object], what: str, limit_s: float = LIMIT_S) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.01)


def numbers_in(folder: Path, pattern: str) -> list[int]:
    """PIDs that scripts have written; none that is only half written."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob(pattern))]
    return [int(text) for text in texts if text.endswith("\n")]


def arguments_of(pid: int) -> list[bytes]:
    """Command line of a process; empty if there is none any more."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def none_runs(pids: Sequence[int]) -> bool:
    return not any(map(is_running, pids))


def launcher_of(guard: int) -> int:
    """PID of the launcher below its guard."""
    wait_for(lambda: descendants(guard), "the start of the launcher")
    return descendants(guard)[0]
