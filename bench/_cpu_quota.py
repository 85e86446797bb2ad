"""Limits on the CPU time of single processes, by cgroups of version 1 or 2."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/sys/fs/cgroup")
_PERIOD_US: Final = 100_000
"""Period of a quota: that of the slowest rank is 1 ms, the least that Linux accepts."""


def parent() -> Path | None:
    """Return the group below which processes get limits; None if there is none."""
    old, enabled = _ROOT / "cpu", _ROOT / "cgroup.subtree_control"
    if os.access(old / "cgroup.procs", os.W_OK):
        return old
    is_enabled = os.access(enabled, os.W_OK) and "cpu" in enabled.read_text("ascii").split()
    return _ROOT if is_enabled else None


@contextmanager
def limited_cpu(share: float, pid: int) -> Iterator[None]:
    """A process has a share of a core."""
    above = parent()
    assert above is not None  # the caller has checked it
    quota = int(share * _PERIOD_US)
    old = {"cpu.cfs_period_us": f"{_PERIOD_US}", "cpu.cfs_quota_us": f"{quota}"}
    new = {"cpu.max": f"{quota} {_PERIOD_US}"}
    group = above / f"holdfast-bench-{pid}"
    group.mkdir()
    try:
        for name, text in (new if above == _ROOT else old).items():
            (group / name).write_text(text, encoding="ascii")
        (group / "cgroup.procs").write_text(str(pid), encoding="ascii")
        yield
    finally:
        for one in (group / "cgroup.procs").read_text(encoding="ascii").split():
            (above / "cgroup.procs").write_text(one, encoding="ascii")
        group.rmdir()
