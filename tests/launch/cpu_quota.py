"""Real CPU quotas of control groups."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def limited_to(percent: int, pid: int, name: str) -> Iterator[None]:
    """A process has a CPU quota, of cgroups in version 1 or 2."""
    old, new = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
    is_old = (old / "cpu.shares").exists()
    parent = old if is_old else new
    if not is_old and "cpu" not in _text(new / "cgroup.subtree_control").split():
        pytest.skip("no CPU controller of cgroups is available")
    group = parent / name
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"cgroups cannot be created: {error}")
    try:
        quota = f"{percent * 1000}"
        limit = "cpu.cfs_quota_us" if is_old else "cpu.max"
        (group / limit).write_text(quota if is_old else f"{quota} 100000", encoding="utf-8")
        (group / "cgroup.procs").write_text(f"{pid}", encoding="utf-8")
        yield
    finally:
        for one in _text(group / "cgroup.procs").split():
            (parent / "cgroup.procs").write_text(one, encoding="utf-8")
        group.rmdir()


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
