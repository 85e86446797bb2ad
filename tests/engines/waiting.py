"""Waiting until something holds."""

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

TIMEOUT_S = 180
POLL_S = 0.02
LONGEST_POLL_S = 0.1
"""What takes long is looked at less often: each look costs the API server time, too."""


def until(condition: Callable[[], object]) -> None:
    """Wait until it holds; a test fails if it does not within three minutes."""
    deadline, pause_s = time.monotonic() + TIMEOUT_S, POLL_S
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(pause_s)
        pause_s = min(1.2 * pause_s, LONGEST_POLL_S)


def until_defined(kubectl: Sequence[str | Path], *definitions: str | Path) -> None:
    """Wait until kinds are served; kubectl gives up on one that has no status yet."""
    wait = [*kubectl, "wait", "--for=condition=Established", "--timeout=5s", *definitions]
    until(lambda: subprocess.run(wait, check=False).returncode == 0)
