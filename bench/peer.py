"""node-problem-detector with the agent's rules, to be measured beside the agent.

It is built from its Go module, without cgo, into the user's cache. Where that is not possible, the
reason is printed, and the agent is measured alone against recorded figures of
node-problem-detector.
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
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

from bench.agent import resident_mib
from holdfast.detectors import gpu_xid, table
from holdfast.detectors.contract import LogLine, Profile, Readings
from holdfast.detectors.log_rules import LogRule
from holdfast.detectors.xid_codes import XID_CODES

MODULE = "k8s.io/node-problem-detector"
VERSION = "v1.34.0"
BUILD_S = 300
TIMEOUT_S = 60
MEMORY_MIB = 41.0
REASON = "NvidiaGpuXidErrorPendingReplacement"
_NOT_IN_GO = ("(?!", "(?=", "(?<")


@dataclass
class Watcher:
    """A process that follows the log, and the port of its metrics."""

    pid: int
    port: int
    peak_mib: float = 0.0
    latencies_ms: list[float] = field(default_factory=list)

    def count(self) -> int:
        """How many problems it has counted, by its own metrics."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
            text = answer.read().decode()
        found = re.search(rf'^problem_counter{{reason="{REASON}"}} (\S+)', text, re.MULTILINE)
        return int(float(found[1])) if found else 0

    def watch_memory(self) -> None:
        """Take note of its memory, if it was never more."""
        self.peak_mib = max(self.peak_mib, resident_mib(self.pid))

    def cpu_s(self) -> float:
        """User and system time that it and the commands that it ran have used."""
        stat = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2]
        return sum(map(int, stat.split()[11:15])) / os.sysconf("SC_CLK_TCK")


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


@contextmanager
def agent(folder: Path, log: Path, *options: str) -> Iterator[Watcher]:
    """The agent on ``log``."""
    (folder / "boot_id").write_text("boot\n", encoding="utf-8")
    (folder / "kmsg").touch()
    port = _free_port()
    argv = [
        sys.executable, "-m", "holdfast", "agent", "--node", "bench", "--log-file", str(log),
        "--kmsg", str(folder / "kmsg"), "--boot-id-file", str(folder / "boot_id"),
        "--report-dir", str(folder / "run"), "--metrics", str(port), *options,
    ]  # fmt: skip
    with _started(argv, port) as watcher:
        yield watcher


def rules() -> list[dict[str, str]]:
    """The agent's own rules about the kernel's log, as node-problem-detector wants them.

    Go's regular expressions cannot look around: the few rules that do are left out.
    """
    patterns: dict[str, list[str]] = {}
    for build_detector in table.ROWS:
        module = import_module(build_detector.__module__)
        tables = module.rules(Profile.HYPERPOD) if hasattr(module, "rules") else ()
        for rule in getattr(module, "RULES", tables):
            if isinstance(rule, LogRule) and not any(one in rule.pattern for one in _NOT_IN_GO):
                patterns.setdefault(rule.reason, []).append(rule.pattern)
    codes: dict[str, list[int]] = {}
    for code in XID_CODES:
        message = f"NVRM: Xid (PCI:0000:b9:00): {code}, "
        line = LogLine(message=message, observed_at=datetime.now(UTC))
        [finding] = gpu_xid.build(Profile.HYPERPOD).detect(Readings(kernel_log=(line,)))
        codes.setdefault(finding.reason, []).append(code)
    for reason, numbers in codes.items():
        xid = rf"NVRM: Xid \(.*\): ({'|'.join(map(str, numbers))}),"
        patterns.setdefault(reason, []).append(xid)
    return [
        {"type": "temporary", "reason": reason, "pattern": f"{pattern}.*"}
        for reason, found in patterns.items()
        for pattern in found
    ]


@contextmanager
def peer(folder: Path, log: Path, binary: Path) -> Iterator[Watcher]:
    """node-problem-detector on ``log``."""
    config = folder / "peer.json"
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
                "rules": rules(),
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
    deadline = time.monotonic() + TIMEOUT_S
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
