"""The agent: how soon it sees, and how little it weighs."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.disturbed_run import percentile
from bench.figure import Figure

LINES = 300
_MIB = 1024


def run() -> list[Figure]:
    """Append kernel lines, each for another GPU, and wait for each new report."""
    with agent_process() as (process, directory):
        latencies = [_latency_ms(directory, number) for number in range(LINES)]
        resident = resident_mib(process.pid)
    return [
        Figure(
            name="kernel line to confirmed fault, p99",
            value=percentile(latencies, 0.99), unit="ms", goal=100,
        ),
        Figure(name="resident memory of the agent", value=resident, unit="MiB", goal=25),
    ]  # fmt: skip


@contextmanager
def agent_process() -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A running agent and the folder with its files."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "boot_id").write_text("boot\n", encoding="utf-8")
        (directory / "kmsg").touch()
        process = subprocess.Popen(
            [
                sys.executable, "-m", "holdfast", "agent", "--node", "bench",
                "--kmsg", str(directory / "kmsg"), "--boot-id-file", str(directory / "boot_id"),
                "--log-file", str(directory / "messages"), "--report-dir", str(directory),
            ],
            env=os.environ,
        )  # fmt: skip
        try:
            while not (directory / "report.json").exists():
                time.sleep(0.01)
            yield process, directory
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def _latency_ms(directory: Path, number: int) -> float:
    report = directory / "report.json"
    before = report.stat().st_ino
    device = f"{number // 32:04x}:{number % 32:02x}:00"
    line = f"4,{number},{number},-;NVRM: Xid (PCI:{device}): 79, GPU has fallen off the bus.\n"
    start = time.perf_counter()
    with (directory / "kmsg").open("a", encoding="utf-8") as kmsg:
        kmsg.write(line)
    while report.stat().st_ino == before:
        pass
    return (time.perf_counter() - start) * 1000


def resident_mib(pid: int) -> float:
    """Memory of a process that is in use, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    kib = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    return kib / _MIB
