"""State of a host from procfs, sysfs, system calls and container runtimes."""

import ctypes
import os
import re
import signal
import socket
from pathlib import Path
from typing import Final

from holdfast.adapters.host.small_files import names_in, read_small
from holdfast.model.errors import BackendError

_EDAC: Final = "sys/devices/system/edac/mc"
_MEMINFO: Final = ("MemTotal", "MemAvailable", "HardwareCorrupted")
_LOCAL_FILE_SYSTEMS: Final = ("btrfs", "ext2", "ext3", "ext4", "f2fs", "xfs", "zfs")
"""File systems local to this node; ``statvfs`` on a network file system may hang."""
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")  # escaped blanks in proc(5) mountinfo

_START: Final = 18  # index of the start time in proc(5) stat, counted after the state
_SWITCHES: Final = re.compile(r"^(?:non)?voluntary_ctxt_switches:\s*([0-9]+)$", re.M)
_PENDING: Final = re.compile(r"^(?:Sig|Shd)Pnd:\s*([0-9a-f]{1,32})$", re.M)
_SIGKILL: Final = 1 << (signal.SIGKILL - 1)
_NO_NAME: Final = re.compile(r"[^\w./-]")
_MOST_BLOCKED: Final = 100  # maximum number of reported processes

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_TIMEX_BYTES: Final = 208  # struct timex of linux/timex.h on 64 bits
_TIME_ERROR: Final = 5  # adjtimex(2): not synchronized

_CONNECT_S: Final = 5.0
_RUNTIMES: Final = {
    "containerd": "run/containerd/containerd.sock",
    "crio": "run/crio/crio.sock",
    "docker": "run/docker.sock",
}
_KUBELET_PORT: Final = 10248  # port of ``/healthz``


def memory(root: Path) -> dict[str, str]:
    """Return memory values of ``meminfo``, ``pressure/memory`` and ``vmstat``.

    Values of ``meminfo`` in KiB, the pressure (``full/avg60`` in percent), and the number of
    processes that the OOM killer has killed (``oom_kill``). ``memory_failures`` is the number of
    pages with uncorrected errors, since Linux 6.3; ``edac`` is present if memory controllers count
    such errors.
    """
    text = read_small(root / "proc/meminfo") or ""
    rows = (line.partition(":") for line in text.splitlines())
    values = {name: rest.split()[0] for name, _, rest in rows if name in _MEMINFO and rest.split()}
    for line in (read_small(root / "proc/pressure/memory") or "").splitlines():
        kind, *fields = line.split()
        pairs = (field.partition("=") for field in fields)
        values |= {f"{kind}/{name}": value for name, _, value in pairs if name == "avg60"}
    counts = (line.partition(" ") for line in (read_small(root / "proc/vmstat") or "").splitlines())
    values |= {name: count for name, _, count in counts if name == "oom_kill"}
    if _controllers(root):
        values["edac"] = ""
    return values | _memory_failures(root)


def _memory_failures(root: Path) -> dict[str, str]:
    nodes = root / "sys/devices/system/node"
    texts = [read_small(nodes / node / "memory_failure/total") for node in names_in(nodes)]
    counts = [int(text) for text in texts if text is not None and text.isdigit()]
    return {"memory_failures": str(sum(counts))} if counts else {}


def _controllers(root: Path) -> list[str]:
    return [name for name in names_in(root / _EDAC) if name.startswith("mc")]


def disks(root: Path) -> dict[str, str]:
    """Return the state of local file systems, named by their first mount point.

    ``MOUNT/options`` are the options of the file system itself, not of the mount;
    ``MOUNT/writable`` is present unless these make it read-only; ``MOUNT/free`` and
    ``MOUNT/inodes`` are the space and inodes free for unprivileged users, in percent of the total.
    In a container, the latter two are present if one of its own mounts is on the file system.
    """
    values: dict[str, str] = {}
    own = _mounts(root, "self")
    reachable = {device: point for point, (device, _) in reversed(_local_mounts(own).items())}
    known = set()
    # Those of PID 1, or of this process if a sandbox or permissions hide them.
    for point, (device, options) in _local_mounts(_mounts(root, "1") or own).items():
        if device in known:  # pods and sandboxes mount parts of it again
            continue
        known.add(device)
        values[f"{point}/options"] = options
        if "rw" in options.split(","):
            values[f"{point}/writable"] = ""
        if device in reachable:
            values |= _space(point, reachable[device])
    return values


def _mounts(root: Path, process: str) -> str:
    return read_small(root / f"proc/{process}/mountinfo") or ""


def _local_mounts(text: str) -> dict[str, tuple[str, str]]:
    """Return device number and options of each local file system by mount point, in their order.

    Of several mounts on one mount point, the last one hides the others.
    """
    found: dict[str, tuple[str, str]] = {}
    for line in text.splitlines():
        mount, _, file_system = line.partition(" - ")
        fields, kinds = mount.split(), file_system.split()
        if len(fields) < 5 or len(kinds) < 3 or kinds[0] not in _LOCAL_FILE_SYSTEMS:
            continue
        point = _ESCAPED.sub(lambda octal: chr(int(octal[1], 8)), fields[4])
        found[point] = (fields[2], kinds[2])
    return found


def _space(point: str, path: str) -> dict[str, str]:
    """Return the free shares of the file system of ``point``, on which ``path`` is, too."""
    try:
        found = os.statvfs(path)
    except (OSError, ValueError):  # removed, hidden from this process, or not a valid path
        return {}
    values = {}
    if found.f_blocks:
        values[f"{point}/free"] = f"{100 * found.f_bavail / found.f_blocks:.2f}"
    if found.f_files:
        values[f"{point}/inodes"] = f"{100 * found.f_favail / found.f_files:.2f}"
    return values


def edac(root: Path) -> dict[str, str]:
    """Return memory error counts by controller: ``mc0/ue_count`` and ``mc0/ce_count``."""
    found = {
        f"{controller}/{counter}": read_small(root / _EDAC / controller / counter)
        for controller in _controllers(root)
        for counter in ("ue_count", "ce_count", "ue_noinfo_count")
    }
    return {name: count for name, count in found.items() if count is not None}


def clock(_root: Path) -> dict[str, str]:
    """Return whether the kernel clock is synchronized: ``synchronized`` is ``yes`` or ``no``."""
    state = _LIBC.adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    if state == -1:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return {"synchronized": "no" if state == _TIME_ERROR else "yes"}


def processes(root: Path) -> dict[str, str]:
    """Return the number of ``threads`` and ``zombies``, and the ``limit`` of threads.

    ``blocked`` lists the processes in uninterruptible sleep, each as
    ``PID:START:SWITCHES:NAME``, separated by blanks. A process whose number of context switches
    has changed was not blocked throughout. ``killed`` lists those that got SIGKILL, each as
    ``PID:START``.
    """
    fields = (read_small(root / "proc/loadavg") or "").split()
    limits = [read_small(root / f"proc/sys/kernel/{name}") for name in ("pid_max", "threads-max")]
    known = [int(limit) for limit in limits if limit is not None and limit.isdigit()]
    if len(fields) < 4 or not known:
        raise BackendError("cannot read proc/loadavg or proc/sys/kernel/pid_max")
    return {
        "threads": fields[3].rpartition("/")[2],
        "limit": str(min(known)),
        **_states(root),
    }


def _states(root: Path) -> dict[str, str]:
    zombies = 0
    blocked, killed = [], []
    for pid in names_in(root / "proc"):
        if not pid.isdigit():
            continue
        stat = read_small(f"{root}/proc/{pid}/stat") or ""
        head, _, tail = stat.rpartition(")")  # the process name before it may contain any character
        state, *fields = tail.split() or [""]
        zombies += state == "Z"
        if state == "D" and len(fields) > _START:
            name = _NO_NAME.sub("_", head.partition("(")[2])
            status = read_small(f"{root}/proc/{pid}/status") or ""
            switches = "+".join(_SWITCHES.findall(status))
            blocked.append(f"{pid}:{fields[_START]}:{switches}:{name}")
            if any(int(mask, 16) & _SIGKILL for mask in _PENDING.findall(status)):
                killed.append(f"{pid}:{fields[_START]}")
    return {
        "zombies": str(zombies),
        "blocked": " ".join(blocked[:_MOST_BLOCKED]),
        "killed": " ".join(killed[:_MOST_BLOCKED]),
    }


def runtime(root: Path) -> dict[str, str]:
    """Return the container runtimes that accept connections, and ``kubelet`` if it is healthy."""
    answering = [name for name, path in _RUNTIMES.items() if _connects(root / path)]
    if _kubelet_is_healthy():
        answering.append("kubelet")
    return {"queried": "", **dict.fromkeys(answering, "")}


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
