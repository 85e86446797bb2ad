"""What the kernel and the daemons of a host say of its state."""

import ctypes
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.adapters.host.small_files import names_in, read_small
from holdfast.model.errors import BackendError

_MEMINFO: Final = ("MemTotal", "MemAvailable", "HardwareCorrupted")
_LOCAL_FILE_SYSTEMS: Final = ("btrfs", "ext2", "ext3", "ext4", "f2fs", "xfs", "zfs")
"""Those whose state is this node's; asking a server for its free space may hang."""
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")  # blanks and the like in proc(5) mountinfo

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_TIMEX_BYTES: Final = 208  # struct timex of linux/timex.h on 64 bits
_TIME_ERROR: Final = 5  # adjtimex(2): not synchronized

_CONNECT_S: Final = 5.0
_RUNTIMES: Final = {
    "containerd": "run/containerd/containerd.sock",
    "crio": "run/crio/crio.sock",
    "docker": "run/docker.sock",
}
_KUBELET_PORT: Final = 10248  # of its ``/healthz``


def memory(root: Path) -> dict[str, str]:
    """Numbers of ``meminfo`` in KiB, and the pressure: ``full/avg60`` in percent."""
    text = read_small(root / "proc/meminfo") or ""
    rows = (line.partition(":") for line in text.splitlines())
    values = {name: rest.split()[0] for name, _, rest in rows if name in _MEMINFO and rest.split()}
    for line in (read_small(root / "proc/pressure/memory") or "").splitlines():
        kind, *fields = line.split()
        pairs = (field.partition("=") for field in fields)
        values |= {f"{kind}/{name}": value for name, _, value in pairs if name == "avg60"}
    return values


def disks(root: Path) -> dict[str, str]:
    """Local file systems by mount point.

    ``MOUNT/options`` is that of the file system itself, not of the mount; ``MOUNT/writable`` is
    there as long as these do not forbid to write; ``MOUNT/free`` and
    ``MOUNT/inodes`` are what an unprivileged user can still take, in percent of all.
    """
    values: dict[str, str] = {}
    for line in (read_small(root / "proc/self/mountinfo") or "").splitlines():
        mount, _, file_system = line.partition(" - ")
        fields, kinds = mount.split(), file_system.split()
        if len(fields) < 5 or len(kinds) < 3 or kinds[0] not in _LOCAL_FILE_SYSTEMS:
            continue
        point = _ESCAPED.sub(lambda octal: chr(int(octal[1], 8)), fields[4])
        values[f"{point}/options"] = kinds[2]
        if "rw" in kinds[2].split(","):
            values[f"{point}/writable"] = ""
        values |= _space(root, point)
    return values


def _space(root: Path, point: str) -> dict[str, str]:
    try:
        found = os.statvfs(root / point.lstrip("/"))
    except (OSError, ValueError):  # gone, hidden from us, or no name at all
        return {}
    values = {}
    if found.f_blocks:
        values[f"{point}/free"] = f"{100 * found.f_bavail / found.f_blocks:.2f}"
    if found.f_files:
        values[f"{point}/inodes"] = f"{100 * found.f_favail / found.f_files:.2f}"
    return values


def edac(root: Path) -> dict[str, str]:
    """Counts of memory errors by controller: ``mc0/ue_count`` and ``mc0/ce_count``."""
    directory = root / "sys/devices/system/edac/mc"
    found = {
        f"{controller}/{counter}": read_small(directory / controller / counter)
        for controller in names_in(directory)
        if controller.startswith("mc")
        for counter in ("ue_count", "ce_count", "ue_noinfo_count")
    }
    return {name: count for name, count in found.items() if count is not None}


def clock(_root: Path) -> dict[str, str]:
    """Whether the kernel's clock is steered: ``synchronized`` is ``yes`` or ``no``."""
    state = _LIBC.adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    if state == -1:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return {"synchronized": "no" if state == _TIME_ERROR else "yes"}


def processes(root: Path) -> dict[str, str]:
    """How many ``threads`` and ``zombies`` there are, and the ``limit`` of threads."""
    fields = (read_small(root / "proc/loadavg") or "").split()
    limits = [read_small(root / f"proc/sys/kernel/{name}") for name in ("pid_max", "threads-max")]
    known = [int(limit) for limit in limits if limit is not None and limit.isdigit()]
    if len(fields) < 4 or not known:
        raise BackendError("proc/loadavg or proc/sys/kernel/pid_max says nothing")
    return {
        "threads": fields[3].rpartition("/")[2],
        "limit": str(min(known)),
        "zombies": str(sum(_zombies(root))),
    }


def _zombies(root: Path) -> Iterator[bool]:
    for name in names_in(root / "proc"):
        if name.isdigit():
            stat = read_small(f"{root}/proc/{name}/stat") or ""
            yield stat.rpartition(")")[2].startswith(" Z")  # the name before may hold anything


def runtime(root: Path) -> dict[str, str]:
    """The container runtimes that answer, and ``kubelet`` if it says that it is healthy."""
    answering = [name for name, path in _RUNTIMES.items() if _connects(root / path)]
    if _kubelet_is_healthy():
        answering.append("kubelet")
    return {"asked": "", **dict.fromkeys(answering, "")}


def _connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_CONNECT_S)
        try:
            connection.connect(str(path))
        except OSError:
            return False
        return True


def _kubelet_is_healthy() -> bool:
    try:
        with socket.create_connection(("127.0.0.1", _KUBELET_PORT), _CONNECT_S) as connection:
            connection.sendall(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
            return b" 200 " in connection.recv(1024).partition(b"\r\n")[0]
    except OSError:
        return False
