"""Limits on the CPU time and the reads of single processes, by cgroups of version 1 or 2."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/sys/fs/cgroup")
_OLD: Final = {"cpu": "cpu", "io": "blkio"}
_PERIOD_US: Final = 100_000
"""Period of a quota: that of the slowest rank is 1 ms, the least that Linux accepts."""


def parent_of(controller: str) -> Path | None:
    """Return the group below which processes get limits; None if there is none.

    Args:
        controller: ``cpu`` or ``io``.

    """
    old, enabled = _ROOT / _OLD[controller], _ROOT / "cgroup.subtree_control"
    if os.access(old / "cgroup.procs", os.W_OK):
        return old
    is_enabled = os.access(enabled, os.W_OK) and controller in enabled.read_text("ascii").split()
    return _ROOT if is_enabled else None


@contextmanager
def limited_cpu(share: float, pid: int) -> Iterator[None]:
    """A process has a share of a core."""
    quota = int(share * _PERIOD_US)
    old = {"cpu.cfs_period_us": f"{_PERIOD_US}", "cpu.cfs_quota_us": f"{quota}"}
    with _limited("cpu", pid, old, {"cpu.max": f"{quota} {_PERIOD_US}"}):
        yield


@contextmanager
def limited_reads(rate: int, pid: int, file: Path) -> Iterator[None]:
    """A process reads so many bytes a second from the disk of a file, past the page cache."""
    device = file.stat().st_dev
    disk = f"{os.major(device)}:{os.minor(device)}"
    old = {"blkio.throttle.read_bps_device": f"{disk} {rate}"}
    with _limited("io", pid, old, {"io.max": f"{disk} rbps={rate}"}):
        yield


@contextmanager
def _limited(
    controller: str, pid: int, old: Mapping[str, str], new: Mapping[str, str]
) -> Iterator[None]:
    parent = parent_of(controller)
    assert parent is not None  # the caller has checked it
    group = parent / f"holdfast-bench-{pid}"
    group.mkdir()
    try:
        for name, text in (new if parent == _ROOT else old).items():
            (group / name).write_text(text, encoding="ascii")
        (group / "cgroup.procs").write_text(str(pid), encoding="ascii")
        yield
    finally:
        for one in (group / "cgroup.procs").read_text(encoding="ascii").split():
            (parent / "cgroup.procs").write_text(one, encoding="ascii")
        group.rmdir()
