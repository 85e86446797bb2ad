"""Reads the control groups (cgroups, version 1 and 2) of processes."""

from pathlib import Path
from typing import Final

from holdfast.adapters.host.small_files import read_small
from holdfast.kit.cgroup_paths import lineage

_KILLS: Final = "oom_kill"
_EVENTS: Final = ("memory.events", "memory.oom_control")
"""Files with the number of OOM kills: of version 2, with groups below, and of version 1, without
(Linux, Documentation/admin-guide/cgroup-v2.rst, mm/memcontrol-v1.c)."""


def control_groups(pid: int | str, controller: str) -> list[Path]:
    """Return the control groups that may limit a process, innermost first.

    Args:
        pid: the process, or ``self``.
        controller: what they limit, such as ``cpu``.

    """
    mounts = read_small("/proc/self/mountinfo") or ""
    found: list[Path] = []
    for line in (read_small(f"/proc/{pid}/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, own = rest.partition(":")
        if not controllers:
            found += lineage(own, mounts)
        elif controller in controllers.split(","):
            found += lineage(own, mounts, controller)
    return found


def oom_kills() -> int | None:
    """Return how many processes of this process's control group were killed for lack of memory.

    None if that is unknown, as without the memory controller.
    """
    for group in control_groups("self", "memory"):
        for name in _EVENTS:
            lines = (read_small(group / name) or "").splitlines()
            values = dict(line.partition(" ")[::2] for line in lines)
            if values.get(_KILLS, "").isdecimal():
                return int(values[_KILLS])
    return None
