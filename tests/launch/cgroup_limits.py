"""Real limits of control groups."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def limited_to(percent: int, pid: int, name: str) -> Iterator[None]:
    """A process has a CPU quota, of cgroups in version 1 or 2."""
    quota = f"{percent * 1000}"
    limits = {"cpu.cfs_quota_us": quota, "cpu.max": f"{quota} 100000"}
    with _in_group("cpu", limits, pid, name):
        yield


@contextmanager
def memory_limited_to(mib: int, pid: int, name: str) -> Iterator[None]:
    """A process has a memory limit, of cgroups in version 1 or 2."""
    limits = dict.fromkeys(("memory.limit_in_bytes", "memory.max"), f"{mib << 20}")
    with _in_group("memory", limits, pid, name):
        yield


@contextmanager
def _in_group(controller: str, limits: dict[str, str], pid: int, name: str) -> Iterator[None]:
    old, new = Path("/sys/fs/cgroup", controller), Path("/sys/fs/cgroup")
    is_old = (old / "cgroup.procs").exists()
    parent = old if is_old else new
    if not is_old and controller not in _text(new / "cgroup.subtree_control").split():
        pytest.skip(f"no {controller} controller of cgroups is available")
    group = parent / name
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"cgroups cannot be created: {error}")
    try:
        for limit in (group / one for one in limits):
            if limit.exists():
                limit.write_text(limits[limit.name], encoding="utf-8")
        (group / "cgroup.procs").write_text(f"{pid}", encoding="utf-8")
        yield
    finally:
        for one in _text(group / "cgroup.procs").split():
            (parent / "cgroup.procs").write_text(one, encoding="utf-8")
        group.rmdir()


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
