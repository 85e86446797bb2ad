"""Directories of control groups (cgroups) of version 1 and 2."""

import re
from pathlib import Path
from typing import Final

_FIELDS: Final = 6
"""Fields of a line of mountinfo before the optional ones, see proc(5)."""


def mounted(own: str, mounts: str, controller: str = "") -> Path | None:
    """Return the directory of a control group; None if it is not mounted.

    Args:
        own: path of the control group, as in /proc/PID/cgroup.
        mounts: lines of /proc/self/mountinfo.
        controller: controller of version 1, such as ``cpu``; empty for version 2.

    """
    found = _mount(own, mounts, controller)
    return None if found is None else found[1]


def lineage(own: str, mounts: str, controller: str = "") -> list[Path]:
    """Return the directories of a control group and of all those above it, innermost first.

    Args:
        own: path of the control group, as in /proc/PID/cgroup.
        mounts: lines of /proc/self/mountinfo.
        controller: controller of version 1, such as ``cpu``; empty for version 2.

    """
    found = _mount(own, mounts, controller)
    if found is None:
        return []
    point, folder = found
    return [one for one in (folder, *folder.parents) if one.is_relative_to(point)]


def _mount(own: str, mounts: str, controller: str) -> tuple[Path, Path] | None:
    """Return the mount point and the directory of a control group."""
    if ".." in own.split("/"):  # outside of the namespace
        return None
    for line in mounts.splitlines():
        mount, _, kind = line.partition(" - ")
        fields = mount.split()
        if not _is_of(controller, kind) or len(fields) < _FIELDS:
            continue
        root, point = (re.sub(r"\\([0-7]{3})", _character, field) for field in fields[3:5])
        if own == root or own.startswith(root.rstrip("/") + "/"):
            return Path(point), Path(point, own[len(root) :].lstrip("/"))
    return None


def _is_of(controller: str, kind: str) -> bool:
    """Return whether the end of a line of mountinfo is that of a hierarchy of control groups."""
    if not controller:
        return kind.startswith("cgroup2 ")
    return kind.startswith("cgroup ") and controller in kind.rpartition(" ")[2].split(",")


def _character(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 8))
