"""An agent of one node, as a process of this machine."""

import subprocess
import sys
from pathlib import Path
from typing import Self

from launch.launched import clean_environment, wait_for

from holdfast.adapters.local.faults import XID_TEXTS


class AgentAtWork:
    """``holdfast agent`` of a node whose kernel log is a file."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.report = folder / "report.json"
        self._kmsg = folder / "kmsg"
        self._kmsg.touch()
        self._lines = 0
        boot_id = folder / "boot_id"
        boot_id.write_text("boot-1\n", encoding="utf-8")
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "holdfast", "agent", "--logs-only"),
                *("--node", folder.name, "--report-dir", str(folder)),
                *("--kmsg", str(self._kmsg), "--boot-id-file", str(boot_id)),
            ],
            env=clean_environment(),
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> Self:
        wait_for(self.report.exists, "the first report")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def log_xid(self, code: int) -> None:
        """Log an XID as NVIDIA's driver does."""
        self._lines += 1
        text = f"NVRM: Xid (PCI:0000:b9:00): {code}, pid=<unknown>, name=<unknown>, "
        with self._kmsg.open("a", encoding="utf-8") as log:
            log.write(f"4,{self._lines},{self._lines},-;{text}{XID_TEXTS[code]}\n")
