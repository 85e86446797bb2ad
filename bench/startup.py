"""How soon a command answers: people wait for it, and shells complete names with it.

What is measured is the time of the processor, which is all that a command takes that waits for
nobody; what else runs on the machine hardly changes it.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from bench.figure import Figure

TIMES = 10
COMMANDS = (
    ("--version",),
    ("--help",),
    ("status",),
    ("nodes", "list"),
    ("jobs", "list"),
    ("nodes", "reboot", "--help"),
)


def run() -> list[Figure]:
    """Start each command so many times, with no run to look at; the first writes bytecode."""
    return [
        Figure(
            name=f"holdfast {' '.join(argv)}",
            value=min(_took_ms(argv) for _ in range(TIMES)),
            unit="ms",
            goal=200,
        )
        for argv in COMMANDS
    ]


def _took_ms(argv: Sequence[str]) -> float:
    with tempfile.TemporaryDirectory() as home:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", *argv],
            env={**os.environ, "HOLDFAST_HOME": home},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        return (used.ru_utime + used.ru_stime) * 1000
