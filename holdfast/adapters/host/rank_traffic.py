"""Reads how much ranks have sent and received: by TCP, and through InfiniBand, RoCE and EFA ports.

The counters of a network interface are not those of a job: other jobs, an SSH session and agents
use it, too. So TCP is counted by connection, for those that processes of the job have open (see
sock_diag(7)). A port for RDMA has only counters of its own. It counts if a process of the job has
its device open.
"""

import os
import socket
import struct
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.adapters.host.small_files import names_in, read_small
from holdfast.decisions.job_activity import Traffic
from holdfast.model.errors import BackendError

_SYSFS: Final = Path("/sys")
_DEVICES: Final = Path("/dev/infiniband")

_NETLINK_SOCK_DIAG: Final = 4  # linux/netlink.h
_SOCK_DIAG_BY_FAMILY: Final = 20  # linux/sock_diag.h
_REQUEST_DUMP: Final = 0x301  # NLM_F_REQUEST, NLM_F_DUMP
_ERROR, _DONE = 2, 3  # NLMSG_ERROR, NLMSG_DONE
_INFO: Final = 2  # INET_DIAG_INFO
_STATES: Final = 0xFFF & ~(1 << 6 | 1 << 10)
"""All but TIME_WAIT and LISTEN, which have no data."""

_HEADER: Final = struct.Struct("=IHHII")  # nlmsghdr
_QUERY: Final = struct.Struct("=BBBxI48x")  # inet_diag_req_v2
_INODE_AT: Final = 68  # of inet_diag_msg
_MESSAGE_BYTES: Final = 72
_ATTRIBUTE: Final = struct.Struct("=HH")  # rtattr
_COUNTS: Final = struct.Struct("=QQ")
_COUNTS_AT: Final = 120
"""Of tcp_info: ``tcpi_bytes_acked`` and ``tcpi_bytes_received``, since Linux 4.1."""

_ALIGN: Final = 4
_BUFFER: Final = 1 << 16
_TIMEOUT_S: Final = 1.0
_WORD: Final = 4
"""Bytes in the unit of the InfiniBand counters ``port_xmit_data`` and ``port_rcv_data``."""


def read_traffic(
    pids: Collection[int], sysfs: Path = _SYSFS, folder: Path = _DEVICES
) -> Traffic | None:
    """Return what processes have sent and received; None if that cannot be read.

    It cannot without permission, in a kernel without tcp_diag, and of processes in another network
    namespace than this one.

    Args:
        pids: the processes; those that have ended are passed over.
        sysfs: where sysfs is mounted.
        folder: device files for RDMA.

    """
    try:
        opened = {target for pid in pids for target in _open_files(pid)}
        connections = _connections()
        devices = sorted(
            found
            for name in opened
            if name.startswith(f"{folder}/uverbs")
            for found in [read_small(sysfs / "class/infiniband_verbs" / Path(name).name / "ibdev")]
            if found
        )
        ports = dict(_ports(sysfs / "class/infiniband", devices))
    except (OSError, struct.error, BackendError):
        return None
    own = {inode: count for inode, count in connections.items() if f"socket:[{inode}]" in opened}
    return Traffic(connections=own, ports=ports)


def _open_files(pid: int) -> Iterator[str]:
    """Yield the open files of a process; none if it has ended.

    Raises:
        OSError: they may not be read, or its connections are those of another network namespace.

    """
    with suppress(FileNotFoundError, ProcessLookupError):
        if os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net"):
            raise OSError("another network namespace")
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(FileNotFoundError):
                yield os.readlink(f"/proc/{pid}/fd/{name}")


def _connections() -> dict[int, int]:
    """Return the bytes that were sent and received, by the inode of the socket.

    Raises:
        OSError: the kernel does not report them.

    """
    found: dict[int, int] = {}
    for family in (socket.AF_INET, socket.AF_INET6):
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_SOCK_DIAG) as channel:
            channel.settimeout(_TIMEOUT_S)
            query = _QUERY.pack(family, socket.IPPROTO_TCP, 1 << (_INFO - 1), _STATES)
            size = _HEADER.size + len(query)
            channel.send(_HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0) + query)
            while _add(found, channel.recv(_BUFFER)):
                pass
    return found


def _add(found: dict[int, int], data: bytes) -> bool:
    """Add the connections of one answer; return whether more follow."""
    while len(data) >= _HEADER.size:
        size, kind, *_ = _HEADER.unpack_from(data)
        if kind == _DONE:
            return False
        if kind == _ERROR:
            raise OSError("sock_diag is not supported")
        body = data[_HEADER.size : size]
        (inode,) = struct.unpack_from("=I", body, _INODE_AT)
        count = _count(body[_MESSAGE_BYTES:])
        if inode and count is not None:
            found[inode] = count
        data = data[_aligned(max(size, _HEADER.size)) :]
    return True


def _count(attributes: bytes) -> int | None:
    """Return the bytes of a connection; None if its attributes do not have them."""
    while len(attributes) >= _ATTRIBUTE.size:
        size, kind = _ATTRIBUTE.unpack_from(attributes)
        value = attributes[_ATTRIBUTE.size : size]
        if kind == _INFO and len(value) >= _COUNTS_AT + _COUNTS.size:
            acked, received = _COUNTS.unpack_from(value, _COUNTS_AT)
            return int(acked + received)
        attributes = attributes[_aligned(max(size, _ATTRIBUTE.size)) :]
    return None


def _aligned(size: int) -> int:
    return (size + _ALIGN - 1) // _ALIGN * _ALIGN


def _ports(folder: Path, devices: Collection[str]) -> Iterator[tuple[str, int]]:
    """Yield the bytes of each port, those of EFA devices by kind of transfer."""
    for device in devices:
        for port in names_in(folder / device / "ports"):
            path = folder / device / "ports" / port
            names = [f"hw_counters/{name}" for name in names_in(path / "hw_counters")
                     if name.endswith("_bytes") and not name.startswith("retrans")]  # fmt: skip
            counts = [_number(path / name) for name in names]
            data = ("counters/port_xmit_data", "counters/port_rcv_data")
            counts += [_WORD * _number(path / name) for name in data]
            yield f"{device}/{port}", sum(counts)


def _number(file: Path) -> int:
    text = read_small(file) or ""
    return int(text) if text.isascii() and text.isdecimal() else 0
