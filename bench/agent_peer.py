"""The agent beside node-problem-detector: the same log, the same rule, at the same time.

node-problem-detector is built from its Go module, without cgo, into the user's cache. Where that
is not possible it is said why, and the agent is measured alone against the figures that
node-problem-detector had when this was written.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from bench.disturbed_run import percentile
from bench.figure import Figure

MODULE = "k8s.io/node-problem-detector"
VERSION = "v1.34.0"
BUILD_S = 300
LINES = 100
STORM_S = 10
STORM_RATE = 5000
MATCHING = 50  # one line in so many
PATIENCE_S = 60
PEER_MEMORY_MIB = 41.0
_REASON = "NvidiaGpuXidErrorPendingReplacement"


@dataclass
class Watcher:
    """A process that follows the log, and where it tells what it found."""

    pid: int
    port: int
    peak_mib: float = 0.0
    latencies_ms: list[float] = field(default_factory=list)

    def count(self) -> int:
        """How many problems it has counted, by its own metrics."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
            text = answer.read().decode()
        found = re.search(rf'^problem_counter{{reason="{_REASON}"}} (\S+)', text, re.MULTILINE)
        return int(float(found[1])) if found else 0

    def resident_mib(self) -> float:
        """How much memory it holds now."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        return next(int(kib) for kib in re.findall(r"VmRSS:\s+(\d+)", status)) / 1024

    def watch_memory(self) -> None:
        """Take note of its memory, if it was never more."""
        self.peak_mib = max(self.peak_mib, self.resident_mib())


def run() -> list[Figure]:
    """Append lines one by one, and then in a storm; see who finds them, when and at what price."""
    peer_binary = build()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        log = folder / "messages"
        log.touch()
        ours = stack.enter_context(_agent(folder, log))
        watchers = {"agent": ours}
        if peer_binary is not None:
            watchers["peer"] = stack.enter_context(_peer(folder, log, peer_binary))
        for number in range(LINES):
            _append_and_wait(log, number, list(watchers.values()))
        for watcher in watchers.values():
            watcher.watch_memory()
        quiet = {name: watcher.peak_mib for name, watcher in watchers.items()}
        lost = _storm(log, folder / "run" / "report.json", watchers)
    return _figures(watchers, quiet, lost)


def _figures(
    watchers: dict[str, Watcher], quiet: dict[str, float], lost: dict[str, int]
) -> list[Figure]:
    ours = watchers["agent"]
    figures = [
        Figure(
            name="syslog line to counted problem, p99",
            value=percentile(ours.latencies_ms, 0.99), unit="ms", goal=100,
        ),
        Figure(
            name="resident memory beside the peer's",
            value=quiet["agent"], unit="MiB", goal=quiet.get("peer", PEER_MEMORY_MIB),
        ),
        Figure(name="matching lines lost in a storm", value=lost["agent"], unit="", goal=0),
        Figure(
            name="resident memory after the storm",
            value=ours.peak_mib, unit="MiB", goal=quiet["agent"] + 5,
        ),
    ]  # fmt: skip
    if (peer := watchers.get("peer")) is not None:
        slowest = percentile(peer.latencies_ms, 0.99)
        print(
            f"node-problem-detector {VERSION} on the same lines: p99 {slowest:.0f} ms, "
            f"{quiet['peer']:.1f} MiB, after the storm {peer.peak_mib:.1f} MiB, "
            f"{lost['peer']} matching lines lost",
            file=sys.stderr,
        )
    return figures


def build() -> Path | None:
    """The binary of node-problem-detector, built if need be; None where it cannot be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    binary = cache / "holdfast" / f"node-problem-detector-{VERSION}"
    if binary.exists():
        return binary
    go = shutil.which("go")
    if go is None:
        return _alone("there is no Go compiler")
    binary.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        command = f"{MODULE}/cmd/nodeproblemdetector"
        for argv in (
            ["mod", "init", "peer"],
            ["get", f"{command}@{VERSION}"],
            ["build", "-o", str(binary), command],
        ):
            try:
                subprocess.run(
                    [go, *argv], cwd=folder, env={**os.environ, "CGO_ENABLED": "0"},
                    check=True, capture_output=True, encoding="utf-8", timeout=BUILD_S,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                return _alone(f"go {argv[0]} took longer than {BUILD_S} s")
            except subprocess.CalledProcessError as error:
                return _alone(error.stderr.strip().splitlines()[-1])
    return binary


def _alone(why: str) -> None:
    print(f"node-problem-detector could not be built, ours is alone: {why}", file=sys.stderr)


def _line(device: int, code: int = 74) -> str:
    now = datetime.now(UTC).astimezone()
    address = f"PCI:{device // 32:04x}:{device % 32:02x}:00"
    return f"{now:%b %e %H:%M:%S} host kernel: NVRM: Xid ({address}): {code}, pid=1, name=x, text\n"


def _append_and_wait(log: Path, number: int, watchers: list[Watcher]) -> None:
    """Append one line about another GPU, and note how long each watcher takes to count it."""
    goal = {id(watcher): watcher.count() + 1 for watcher in watchers}
    start = time.perf_counter()
    with log.open("a", encoding="utf-8") as file:
        file.write(_line(number))

    def wait(watcher: Watcher) -> None:
        while watcher.count() < goal[id(watcher)]:
            assert time.perf_counter() - start < PATIENCE_S, "a line was never counted"
            time.sleep(0.002)
        watcher.latencies_ms.append((time.perf_counter() - start) * 1000)

    threads = [threading.Thread(target=wait, args=(watcher,)) for watcher in watchers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _storm(log: Path, report: Path, watchers: dict[str, Watcher]) -> dict[str, int]:
    """Append ``STORM_RATE`` lines a second. Returns how many of the matching ones were lost.

    Of a fault that holds the agent counts the sightings in its report.
    """

    def sightings() -> int:
        faults = json.loads(report.read_text(encoding="utf-8"))["faults"]
        return sum(fault["count"] + fault["followers"] for fault in faults)

    tell: dict[str, Callable[[], int]] = {"agent": sightings}
    if "peer" in watchers:
        tell["peer"] = watchers["peer"].count
    before = {name: count() for name, count in tell.items()}
    sent = 0
    start = time.monotonic()
    with log.open("a", encoding="utf-8") as file:
        for tick in range(STORM_S * 100):
            size = STORM_RATE // 100
            batch = ["Nov 20 10:00:00 host kernel: usb 1-1: new device\n"] * size
            batch[::MATCHING] = [_line(tick % 8)] * (size // MATCHING)
            sent += size // MATCHING
            file.write("".join(batch))
            file.flush()
            time.sleep(max(start + (tick + 1) / 100 - time.monotonic(), 0))
            if tick % 50 == 0:
                for watcher in watchers.values():
                    watcher.watch_memory()
    return {name: _missing(count, before[name] + sent) for name, count in tell.items()}


def _missing(count: Callable[[], int], goal: int) -> int:
    deadline = time.monotonic() + 15
    while (missing := goal - count()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return abs(missing)


@contextmanager
def _agent(folder: Path, log: Path) -> Iterator[Watcher]:
    (folder / "boot_id").write_text("boot\n", encoding="utf-8")
    (folder / "kmsg").touch()
    port = _free_port()
    argv = [
        sys.executable, "-m", "holdfast", "agent", "--node", "bench", "--log-file", str(log),
        "--kmsg", str(folder / "kmsg"), "--boot-id-file", str(folder / "boot_id"),
        "--report-dir", str(folder / "run"), "--metrics", str(port),
    ]  # fmt: skip
    with _started(argv, port) as watcher:
        yield watcher


@contextmanager
def _peer(folder: Path, log: Path, binary: Path) -> Iterator[Watcher]:
    config = folder / "peer.json"
    rule = {
        "type": "temporary",
        "reason": _REASON,
        "pattern": r"NVRM: Xid \(.*\): (74|79|64),.*",
    }
    config.write_text(
        json.dumps(
            {
                "plugin": "filelog",
                "pluginConfig": {
                    "timestamp": "^.{15}",
                    "message": "kernel: (.*)",
                    "timestampFormat": "Jan _2 15:04:05",
                },
                "logPath": str(log),
                "lookback": "5m",
                "bufferSize": 10,
                "source": "bench",
                "conditions": [],
                "rules": [rule],
            }
        ),
        encoding="utf-8",
    )
    port = _free_port()
    argv = [
        str(binary), "--enable-k8s-exporter=false", "--port=0", f"--prometheus-port={port}",
        f"--config.system-log-monitor={config}",
    ]  # fmt: skip
    with _started(argv, port) as watcher:
        yield watcher


@contextmanager
def _started(argv: list[str], port: int) -> Iterator[Watcher]:
    process = subprocess.Popen(argv, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    watcher = Watcher(process.pid, port)
    try:
        _wait_until_served(process, watcher)
        yield watcher
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _wait_until_served(process: subprocess.Popen[bytes], watcher: Watcher) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            watcher.count()
        except OSError:
            assert process.poll() is None, f"{process.args!r} ended with {process.returncode}"
            assert time.monotonic() < deadline, f"{process.args!r} serves no metrics"
            time.sleep(0.05)
        else:
            return


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port
