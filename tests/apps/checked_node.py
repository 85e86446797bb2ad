"""A node made of files, with tools that print what real ones print."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.apps.main import run
from tests.engines.host_tools import require_tool

RECORDINGS = Path(__file__).parents[1] / "recordings"
STRESS = """stress-ng: info:  [9] setting to a {asked} second run per stressor
stress-ng: info:  [9] dispatching hogs: 1 hdd
stress-ng: metrc: [9] stressor       bogo ops real time  usr time  sys time   bogo ops/s     bogo
stress-ng: metrc: [9] cpu                8354      3.00      5.79      0.04      {ops}        1435.25        96.97          3156
stress-ng: metrc: [9] vm                 8354      3.00      5.79      0.04      {ops}        1435.25        96.97          3156
stress-ng: metrc: [9] hdd               26154      3.01      0.77      0.51      8685.79       20376.74        42.63          2580
stress-ng: metrc: [9] miscellaneous metrics:
stress-ng: metrc: [9] hdd                  {read} MB/sec read rate (geometic mean of 1 instances)
stress-ng: metrc: [9] hdd                  {write} MB/sec write rate (geometic mean of 1 instances)
stress-ng: info:  [9] successful run completed in {ran}s
"""  # noqa: E501


def stress_text(**changes: object) -> str:
    values = {"asked": 10, "ran": "10.01", "ops": "2783.57", "read": "662.13", "write": "875.40"}
    return STRESS.format(**(values | changes))


class CheckedNode:
    """The node, and what ``holdfast check node`` says of it."""

    def __init__(self, folder: Path, capture: Callable[[], Any]) -> None:
        self.folder = folder
        self.capture = capture
        self.bin = folder / "bin"
        self.root = folder / "root"
        self.disk = folder / "disk"
        for path in (self.bin, self.root / "proc", self.disk):
            path.mkdir(parents=True)
        (self.root / "proc/meminfo").write_text("MemAvailable:  102400 kB\n")
        self.config = folder / "check.toml"
        self.more = ""

    def is_a(self, instance_type: str) -> None:
        name = self.root / "sys/class/dmi/id/product_name"
        name.parent.mkdir(parents=True)
        name.write_text(f"{instance_type}\n")

    def tool(self, name: str, code: str) -> None:
        """A program that is this Python code; ``argv`` are its arguments."""
        path = self.bin / name
        path.write_text(f"#!{sys.executable}\nimport os, sys, time\nargv = sys.argv[1:]\n{code}\n")
        path.chmod(0o755)

    def prints(self, name: str, text: str, *, status: int = 0) -> None:
        self.tool(name, f"print({text!r}, end='', flush=True)\nsys.exit({status})")

    def records(self, name: str, recording: str, *, status: int = 0) -> None:
        self.prints(name, (RECORDINGS / recording).read_text(encoding="utf-8"), status=status)

    def real(self, name: str) -> None:
        (self.bin / name).symlink_to(require_tool(name))

    def write_config(self) -> Path:
        self.config.write_text(
            f'root = "{self.root}"\ncommand_path = "{self.bin}"\ndisk = "{self.disk}"\n{self.more}'
        )
        return self.config

    def argv(self, *options: str) -> list[str]:
        return ["check", "node", "--config", str(self.write_config()), *options]

    def check(self, *options: str) -> tuple[int, dict[str, Any]]:
        """Exit code and result; parts by name."""
        code = run(self.argv(*options, "--output", "json"))
        captured = self.capture()
        assert captured.err == ""
        result = json.loads(captured.out)
        return code, result | {"parts": {part["name"]: part for part in result["parts"]}}

    def part(self, name: str, *options: str) -> tuple[int, str, str]:
        """Exit code, outcome and detail of one part."""
        code, result = self.check("--only", name, *options)
        part = result["parts"][name]
        return code, part["outcome"], part["detail"]
