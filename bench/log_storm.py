"""The agent in a storm of kernel lines: how soon it reports a real fault, and how large it gets."""

import json
import threading
import time
from pathlib import Path

from bench.agent import agent_process, resident_mib
from bench.figure import Figure

LINES_PER_S = 1_000_000 / 60
DEVICES = 100_000
SECONDS = 30.0
QUICK_SECONDS = 6.0
_TICK_S = 0.05
_STORM = "4,{0},{0},-;NVRM: Xid (PCI:{1:08x}:00:00): 95, pid=1, name=a, Uncontained: LTC TAG\n"
_REAL = "4,{0},{0},-;efa 0000:a0:{1:02x}.0: EFA device init failed\n"


def run(*, quick: bool = False) -> list[Figure]:
    """Write 10^6 lines a minute that name 10^5 devices, and twice a second a real fault."""
    seconds = QUICK_SECONDS if quick else SECONDS
    with agent_process() as (process, directory):
        ended = threading.Event()
        storm = threading.Thread(target=_storm, args=(directory / "kmsg", ended))
        gaps = _Gaps(directory / "heartbeat", ended)
        storm.start()
        gaps.start()
        latencies, largest, number = [], 0.0, 0
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            latencies.append(_latency_s(directory, number))
            largest = max(largest, resident_mib(process.pid))
            number += 1
        ended.set()
        storm.join()
        gaps.join()
    return [
        Figure(
            name="real fault in a storm of lines, slowest", value=max(latencies), unit="s", goal=1
        ),
        Figure(name="heartbeat gap in a storm of lines", value=gaps.longest, unit="s", goal=1.5),
        Figure(name="memory in a storm of lines", value=largest, unit="MiB", goal=40),
    ]


def _storm(path: Path, ended: threading.Event) -> None:
    number = 0
    began = time.monotonic()
    with path.open("a", encoding="utf-8") as kmsg:
        while not ended.wait(_TICK_S):
            due = int((time.monotonic() - began) * LINES_PER_S)
            kmsg.write("".join(_STORM.format(n, n % DEVICES) for n in range(number, due)))
            kmsg.flush()
            number = due


class _Gaps(threading.Thread):
    """Measures the longest time between two heartbeats."""

    def __init__(self, path: Path, ended: threading.Event) -> None:
        super().__init__()
        self.longest = 0.0
        self._path, self._ended = path, ended

    def run(self) -> None:
        seen, at = self._path.read_text("ascii"), time.monotonic()
        while not self._ended.wait(0.01):
            text = self._path.read_text("ascii")
            if text != seen:
                seen, at = text, time.monotonic()
            self.longest = max(self.longest, time.monotonic() - at)


def _latency_s(directory: Path, number: int) -> float:
    device = f"0000:a0:{number % 32:02x}.0"
    begun = time.monotonic()
    with (directory / "kmsg").open("a", encoding="utf-8") as kmsg:
        kmsg.write(_REAL.format(number, number % 32))
    while device not in _devices(directory):
        time.sleep(0.005)
    latency = time.monotonic() - begun
    time.sleep(0.5)
    return latency


def _devices(directory: Path) -> list[str]:
    report = json.loads((directory / "report.json").read_text(encoding="utf-8"))
    return [fault["device"] for fault in report["faults"]]
