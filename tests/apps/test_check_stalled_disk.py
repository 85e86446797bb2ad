"""A loop device with a file system, whose writes the kernel slows down or holds back."""

import os
import secrets
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.adapters.host.deep_checks.contract import CheckCommand
from holdfast.apps.checks.config import CheckConfig
from holdfast.apps.checks.node import check_node, lay_out
from holdfast.apps.checks.pair_server import Unwatched
from holdfast.apps.clock import SystemClock
from holdfast.model.deep_checks import Outcome
from holdfast.model.node_checks import Level, PartResult
from tests.engines.host_tools import require_tool

GROUPS = Path("/sys/fs/cgroup")
MEMORY = Path("/dev/shm")


class Disk:
    """A disk that writes of this process are slowed down on."""

    def __init__(self, folder: Path) -> None:
        self.mount = folder / "disk"
        self.mount.mkdir()
        name = f"holdfast-{secrets.token_hex(4)}"
        self.image = MEMORY / name
        self.is_old = (GROUPS / "blkio").is_dir()
        self.above = GROUPS / "blkio" if self.is_old else GROUPS
        self.group = self.above / name
        self.device = ""
        controller = "blkio" if self.is_old else ""
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        own = {line.split(":")[1]: line.split(":")[2] for line in lines}
        self.home = self.above / own.get(controller, "/").lstrip("/")

    def build(self) -> None:
        with self.image.open("wb") as image:
            image.truncate(700 << 20)
        self.device = self._call("losetup", "--find", "--show", str(self.image)).strip()
        self._call("mkfs.ext4", "-q", self.device)
        self._call("mount", self.device, str(self.mount))
        if not self.is_old:
            (self.above / "cgroup.subtree_control").write_text("+io")
        self.group.mkdir()

    def allow(self, bytes_per_s: int) -> None:
        """0 lifts the limit."""
        number = os.stat(self.device).st_rdev
        device = f"{os.major(number)}:{os.minor(number)}"
        if self.is_old:
            file = self.group / "blkio.throttle.write_bps_device"
            file.write_text(f"{device} {bytes_per_s}")
        else:
            (self.group / "io.max").write_text(f"{device} wbps={bytes_per_s or 'max'}")

    def check(self, *, timeout: timedelta | None = None) -> PartResult:
        config = CheckConfig(disk=self.mount)
        remediation = lay_out(config, Level.QUICK, names=["disk"], stress_time=timedelta(seconds=2))
        [(name, plan)] = remediation.steps
        assert isinstance(plan, CheckCommand)
        if timeout is not None:
            remediation = replace(remediation, steps=((name, replace(plan, timeout=timeout)),))
        (self.group / "cgroup.procs").write_text(str(os.getpid()))
        try:
            return check_node(remediation, Unwatched(), SystemClock()).parts[0]
        finally:
            (self.home / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self) -> None:
        if self.group.exists():
            self.allow(0)
            deadline = time.monotonic() + 30
            while (self.group / "cgroup.procs").read_text():  # what hung in the kernel goes on now
                assert time.monotonic() < deadline
                time.sleep(0.05)
            self.group.rmdir()
        for argv in (["umount", self.mount], ["losetup", "--detach", self.device]):
            subprocess.run(argv, check=False, capture_output=True)
        self.image.unlink(missing_ok=True)

    def _call(self, *argv: str) -> str:
        return subprocess.run(argv, check=True, capture_output=True, encoding="utf-8").stdout


@pytest.fixture
def disk(tmp_path) -> Iterator[Disk]:
    for tool in ("losetup", "mkfs.ext4", "stress-ng"):
        require_tool(tool)
    made = Disk(tmp_path)
    try:
        try:
            made.build()
        except (subprocess.CalledProcessError, OSError) as error:
            pytest.skip(f"no disk can be made here: {error}")
        yield made
    finally:
        made.remove()


def test_a_disk_that_is_slow_or_stalls_is_found_and_the_check_ends(disk) -> None:
    disk.allow(2 << 20)
    slow = disk.check()
    disk.allow(1)
    stalled = disk.check(timeout=timedelta(seconds=5))

    assert slow.outcome is Outcome.FAILED, slow
    assert 0 < slow.measured["disk_write_mb_per_s"] < 3
    assert list(slow.measured) == ["disk_write_mb_per_s"]  # it had no time to read
    assert "disk_write_mb_per_s is " in slow.detail
    assert (stalled.outcome, stalled.detail) == (
        Outcome.FAILED,
        f"writing to {disk.mount} hung: the disk stalls",
    )
