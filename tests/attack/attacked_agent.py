"""An agent under attack, and what an unprivileged user can run against it."""

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast.adapters.host.report_files import ReportFiles
from holdfast.model.report import NodeReport

NOBODY = 65534
TIMEOUT_S = 90.0


def eventually(is_true: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def as_nobody(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a user without any rights."""
    return subprocess.run(
        ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *command],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


class AttackedAgent:
    """The process ``holdfast agent`` of a machine below ``folder``."""

    def __init__(self, folder: Path, kmsg: Path | None = None) -> None:
        self.root = folder
        self.kmsg = kmsg or folder / "dev/kmsg"
        self.messages = folder / "var/log/messages"
        self.config = folder / "agent.toml"
        for path in (folder / "dev/kmsg", self.messages, self.config):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        (folder / "boot_id").write_text("b1\n", encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str, config: str = "") -> None:
        self.config.write_text(config, encoding="utf-8")
        argv: Sequence[str] = [
            *(sys.executable, "-m", "holdfast", "agent", "--config", str(self.config)),
            *("--node", "n1", "--root", str(self.root), "--kmsg", str(self.kmsg)),
            *("--boot-id-file", str(self.root / "boot_id"), "--heartbeat", "50ms"),
            *("--report-dir", str(self.root / "run/holdfast"), *options),
        ]
        self._process = subprocess.Popen(argv)
        eventually((self.root / "run/holdfast/heartbeat").exists)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def report(self) -> NodeReport:
        report = ReportFiles(self.root / "run/holdfast").last()
        assert report is not None
        return report

    def devices(self) -> list[str]:
        """Devices with a fault that leads to a repair or stops a job."""
        return [fault.device for fault in self.report().faults]

    def log(self, message: str, facility: int = 0) -> None:
        with (self.root / "dev/kmsg").open("a", encoding="utf-8") as kmsg:
            kmsg.write(f"{facility * 8 + 4},1,2,-;{message}\n")

    def log_certain(self) -> None:
        """Log a real fault of ``CERTAIN``, and wait until it is reported."""
        self.log(f"NVRM: Xid ({CERTAIN}): 79, GPU has fallen off the bus.")
        eventually(lambda: CERTAIN in self.devices())


CERTAIN = "PCI:0000:17:00"
VICTIM = "PCI:ffff:ff:1e"
