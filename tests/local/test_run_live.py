"""What ``holdfast run`` paints on a terminal."""

import contextlib
import os
import subprocess
import sys

COLORED_PROGRESS = r"""
print("\x1b[2J\x1b[31mloss\x1b[0m is high", end="\n")
print("\r  0%|\r 50%|\r100%| done")
"""


def test_what_a_job_prints_is_painted_as_a_terminal_shows_it_and_steers_none(run):
    painted = on_a_terminal(run, "--", sys.executable, "-c", COLORED_PROGRESS)

    assert "rank 0 | \x1b[31mloss\x1b[0m is high" in painted
    assert "rank 0 | 100%| done" in painted
    assert "\x1b[2J" not in painted


def on_a_terminal(run, *arguments: str) -> str:
    """Run to the end on a terminal of its own: everything that was written to it."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "run", "--name", run.name, *arguments],
        env={**run.environment, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"},
        stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    written = b""
    with contextlib.suppress(OSError):  # how a terminal says that nobody writes to it any more
        while data := os.read(ours, 1 << 16):
            written += data
    os.close(ours)
    assert process.wait(timeout=600) == 0, written
    return written.decode()
