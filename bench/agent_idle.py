"""The agent with every detector on, on a machine where nothing happens."""

import os
import time
from pathlib import Path

from bench.agent import agent_process, resident_mib
from bench.figure import Figure

BY_NAME_ONLY = True

SECONDS = 60
"""Long enough for each sample to be taken, those of five minutes left out."""

_SETTLING_S = 3


def run() -> list[Figure]:
    """Leave an agent alone and see what it uses."""
    with agent_process() as (process, _):
        time.sleep(_SETTLING_S)
        before = _cpu_s(process.pid)
        time.sleep(SECONDS)
        used = _cpu_s(process.pid) - before
        resident = resident_mib(process.pid)
    return [
        Figure(name="idle agent, part of a core", value=100 * used / SECONDS, unit="%", goal=0.3),
        Figure(name="idle agent, resident memory", value=resident, unit="MiB", goal=25),
    ]


def _cpu_s(pid: int) -> float:
    """User and system time of a process and of the commands that it has run."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
