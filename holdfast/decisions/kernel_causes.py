"""Kernel lines that may explain a hang: one row for each wording, with its source. Pure.

They stand beside the verdict, and never name a rank or a node by themselves: on Kubernetes and
Slurm they pass through the job's own processes.
"""

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class KernelCause:
    """A kernel message and what it reports."""

    text: str
    """What it reports."""

    pattern: str
    """Regular expression of the beginning of the message. ``pci`` is the address of a GPU."""

    example: str
    source: str


ROWS: Final = (
    KernelCause(
        "XID",
        r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:]{5,16})[^()]{0,80}\): [0-9]{1,6}",
        "NVRM: Xid (PCI:0000:b9:00): 79, pid=4242, name=python, GPU has fallen off the bus.",
        "NVIDIA open-gpu-kernel-modules, kernel_rc.c",
    ),
    KernelCause(
        "GPU lost",
        r"NVRM: .{0,80}fallen off the bus",
        "NVRM: GPU at PCI:0000:b9:00: GPU-12345678 has fallen off the bus",
        "NVIDIA open-gpu-kernel-modules, osinit.c",
    ),
    KernelCause(
        "I/O error",
        r"I/O error(?:,| on) dev(?:ice)? \S|nvme nvme[0-9]{1,4}: .{0,80}\b(?:timeout|controller is "
        r"down)",
        "I/O error, dev nvme0n1, sector 2048 op 0x0:(READ) flags 0x0 phys_seg 25 prio class 0",
        "Linux, block/blk-core.c, fs/buffer.c, drivers/nvme/host/pci.c",
    ),
    KernelCause(
        "file system error",
        r"EXT4-fs error |XFS \(\S{1,64}\): .{0,80}(?:I/O error|[Ss]hutting down)",
        'XFS (vdb): metadata I/O error in "xfs_trans_read_buf_map" at daddr 0x28 len 8 error 74',
        "Linux, fs/ext4/super.c, fs/xfs/xfs_buf.c, fs/xfs/xfs_fsops.c",
    ),
    KernelCause(
        "NFS server not responding",
        r"nfs: server \S{1,64} not responding",
        "nfs: server 10.0.0.5 not responding, still trying",
        "Linux, net/sunrpc/clnt.c; a notice, which is less than a warning",
    ),
    KernelCause(
        "Lustre connection lost",
        r"Lustre(?:Error)?: .{0,120}Connection to \S{1,120} \(at \S{1,80}\) was lost",
        "LustreError: 166-1: MGC10.0.0.5@tcp: Connection to MGS (at 10.0.0.5@tcp) was lost; in "
        "progress operations using this service will fail",
        "lustre/ptlrpc/import.c",
    ),
    KernelCause(
        "OOM kill",
        r"(?:Out of memory|Memory cgroup out of memory)\b.{0,60}: Killed process [0-9]{1,10}",
        "Memory cgroup out of memory: Killed process 9876 (python) total-vm:270532kB",
        "Linux, mm/oom_kill.c",
    ),
    KernelCause(
        "network device timed out",
        r"NETDEV WATCHDOG: .{0,80}transmit queue [0-9]{1,5} timed out",
        "NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 3 timed out",
        "Linux, net/sched/sch_generic.c",
    ),
    KernelCause(
        "lockup",
        r"BUG: soft lockup |hard LOCKUP|BUG: workqueue lockup ",
        "watchdog: BUG: soft lockup - CPU#0 stuck for 27s! [python:2255424]",
        "Linux, kernel/watchdog.c, kernel/workqueue.c",
    ),
    KernelCause(
        "blocked task",
        r"INFO: task .{1,64}:[0-9]{1,10} blocked (?:in I/O wait )?for more than [0-9]{1,10} sec",
        "INFO: task python:1177 blocked for more than 120 seconds.",
        "Linux, kernel/hung_task.c",
    ),
)
"""Causes before their consequences."""

_PCI: Final = re.compile(
    r"(?:(?P<domain>[0-9a-fA-F]{4,8}):)?(?P<bus>[0-9a-fA-F]{2}):(?P<slot>[0-9a-fA-F]{2})"
)

_PREFIX: Final = r"(?:[A-Za-z0-9_]{1,32}(?: [0-9a-f:.]{7,16})?(?: [a-z0-9_]{1,15})?: |Buffer )?"
"""Driver and device that may precede a message. Further on, any user can write into some messages,
such as that about a wrong parameter of a mount."""


def cause_of_line(text: str) -> KernelCause | None:
    """Return what a kernel line reports; None if that is not known to explain hangs."""
    return next((row for row in ROWS if re.match(f"{_PREFIX}(?:{row.pattern})", text)), None)


def gpu_address(text: str) -> tuple[int, int, int] | None:
    """Return domain, bus and slot of the GPU that an XID names; None if it names none."""
    found = re.match(ROWS[0].pattern, text)
    return None if found is None else pci_address(found["pci"])


def pci_address(text: str) -> tuple[int, int, int] | None:
    """Return domain, bus and slot of an address such as ``00000000:B9:00.0``; None if invalid."""
    found = _PCI.match(text)
    if found is None:
        return None
    return int(found["domain"] or "0", 16), int(found["bus"], 16), int(found["slot"], 16)
