"""Injects faults into local machines, for ``holdfast inject``.

Each fault affects only the machine, as a hardware fault would; the run is not notified.
"""

import fcntl
import json
import os
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from holdfast.adapters.local.layout import NodeDir
from holdfast.kit.processes import descendants, is_alive, kill_below, send
from holdfast.model.errors import BackendError

_PRIORITY: Final = 4
"""Facility 0 (kernel) and level 4 (warning): of a ``printk`` of the driver without its own
level."""

_SEQUENCE: Final = re.compile(rb"^\d+,(\d+),\d+,[^;\n]*;", re.MULTILINE)
_TAIL_BYTES: Final = 1 << 16
"""Bytes at the end of the log to read, more than the longest kernel record, which has 1 KiB."""

_UNKNOWN_PROCESS: Final = "pid=<unknown>, name=<unknown>, "

XID_TEXTS: Final = {
    13: "Graphics SM Warp Exception on (GPC 7, TPC 7, SM 0): Illegal Instruction Parameter",
    31: (
        "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_8 faulted @ "
        "0x73ac_1c000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE"
    ),
    43: "Ch 00000008",
    45: "Ch 00000008",
    48: "DBE (double bit error) ECC error has been detected",
    63: "Row Remapper: New row marked for remapping, reset gpu to activate.",
    64: "Row Remapper Error: (0x00000002eebc4100) - All reserved rows for bank are remapped",
    73: "Ch 00000008",
    74: "NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
    79: "GPU has fallen off the bus.",
    94: "Contained: SM (0x1). RST: No, D-RST: No",
    95: "Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No",
    109: "Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x58005",
    119: (
        "Timeout after 6s of waiting for RPC response from GPU4 GSP! Expected function 103 "
        "(GSP_RM_ALLOC) (0x2081 0x4)."
    ),
    140: (
        "An uncorrectable ECC error detected (possible firmware handling failure) DRAM:1, LTC:0, "
        "MMU:0, PCIE:0"
    ),
    154: "GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)",
}
"""Text of NVIDIA's driver by XID code, in its own format. 73 is the error of a channel, like 43 and
45; HyperPod's public test logs it with the text of an NVLink error, which is XID 74."""

SXID_SEVERITIES: Final = {"fatal": "Fatal", "non-fatal": "Non-fatal", "correctable": "Correctable"}

_NEURON: Final = (
    "NEURON_HW_ERR={} instance-id=i-0592464924bd45322 hostname=ip-172-31-61-252 nd-id=0 nc-id=0 "
    "serial-num=19fcda00f5ff6eb9 action=TERMINATE_INSTANCE"
)
_NEURON_ERRORS: Final = (
    "SRAM_UNCORRECTABLE_ERROR",
    "NC_UNCORRECTABLE_ERROR",
    "HBM_UNCORRECTABLE_ERROR",
    "DMA_ERROR",
    "HANG_ON_COLLECTIVES",
)
_KILLED: Final = (
    "Killed process 4242 (python) total-vm:270532kB, anon-rss:104520kB, file-rss:0kB, "
    "shmem-rss:0kB, UID:1000 pgtables:288kB oom_score_adj:0"
)
_OOM_KILL: Final = (
    "oom-kill:constraint={},nodemask=(null),cpuset=job,mems_allowed=0-1,{},task_memcg=/job,"
    "task=python,pid=4242,uid=1000"
)
_INVOKED: Final = "python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0"

KERNEL_TEXTS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "neuron": {error: (_NEURON.format(error),) for error in _NEURON_ERRORS},
    "efa": {
        "init-failed": ("efa 0000:a0:19.0: EFA device init failed",),
        "timeout": (
            "infiniband efa_0: The device didn't send any completion for admin cmd CREATE_QP(1) "
            "status 0 (ctx 0x1)",
        ),
    },
    "oom": {
        "cgroup": (
            _INVOKED,
            _OOM_KILL.format("CONSTRAINT_MEMCG", "oom_memcg=/job"),
            f"Memory cgroup out of memory: {_KILLED}",
        ),
        "host": (
            _INVOKED,
            _OOM_KILL.format("CONSTRAINT_NONE", "global_oom"),
            f"Out of memory: {_KILLED}",
        ),
    },
    "disk": {
        "read-only": (
            "Aborting journal on device nvme0n1p1-8.",
            "EXT4-fs (nvme0n1p1): Remounting filesystem read-only",
        ),
        "xfs-shutdown": ("XFS (nvme1n1): Log I/O Error Detected.  Shutting down filesystem",),
        "io-error": (
            "I/O error, dev nvme0n1, sector 2048 op 0x0:(READ) flags 0x0 phys_seg 25 prio class 0",
        ),
        "nvme-timeout": ("nvme nvme0: I/O 29 QID 1 timeout, aborting",),
    },
    "lockup": {
        "hung-task": ("INFO: task python:4242 blocked for more than 120 seconds.",),
        "soft-lockup": ("watchdog: BUG: soft lockup - CPU#0 stuck for 27s! [python:4242]",),
        "rcu-stall": ("rcu: INFO: rcu_sched self-detected stall on CPU",),
    },
}
"""Kernel messages of other faults: by family and kind, the usual kind first."""

_WITHOUT_PROCESS: Final = frozenset({154})
"""XID codes that the GPU itself reports: the driver names no process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectedLine:
    """One kernel message in the two formats in which a machine keeps it."""

    record: str
    """As read from ``/dev/kmsg``: ``priority,sequence,microseconds since boot,flags;text``."""

    syslog: str
    """As rsyslog writes it to ``/var/log/messages``, in local time."""


def xid_line(code: int, device: str, text: str) -> str:
    """Return the driver's message for an XID; ``device`` as in ``0000:b9:00``."""
    process = "" if code in _WITHOUT_PROCESS else _UNKNOWN_PROCESS
    return f"NVRM: Xid (PCI:{device}): {code}, {process}{text}"


def sxid_lines(code: int, device: str, severity: str, text: str) -> tuple[str, ...]:
    """Return the driver's messages for an SXid of the switch ``device``, such as ``0000:c3:00.0``.

    ``severity`` is one of the values of ``SXID_SEVERITIES``.
    """
    start = f"nvidia-nvswitch0: SXid (PCI:{device}): {code:05}, "
    data = ", ".join(["0x50610002", "0x10100030", *["0x00000000"] * 6])
    level = 1 if severity == SXID_SEVERITIES["fatal"] else 0
    return (
        f"{start}{severity}, Link 30 {text} (First)",
        f"{start}Severity {level} Engine instance 30 Sub-engine instance 00",
        f"{start}Data {{{data}}}",
    )


def kernel_line(node: NodeDir, text: str, *, now: datetime, since_boot: timedelta) -> InjectedLine:
    """Return a kernel message in the formats that it would have if it were printed now."""
    sequence = _next_sequence(node.kmsg)
    microseconds = since_boot // timedelta(microseconds=1)
    local = now.astimezone()
    stamp = f"{local:%b} {local.day:2} {local:%H:%M:%S}"
    return InjectedLine(
        record=f"{_PRIORITY},{sequence},{microseconds},-;{text}",
        syslog=f"{stamp} {node.path.name} kernel: {text}",
    )


def write_kernel_line(
    node: NodeDir, text: str, *, now: datetime, since_boot: timedelta
) -> InjectedLine:
    """Write a message to the kernel log of a machine.

    Raises:
        BackendError: the machine is powered off.

    """
    _powered(node)
    with node.kmsg.open("ab", buffering=0) as kmsg, node.messages.open("ab", buffering=0) as log:
        fcntl.flock(kmsg, fcntl.LOCK_EX)  # concurrent writers would get the same sequence number
        line = kernel_line(node, text, now=now, since_boot=since_boot)
        kmsg.write(f"{line.record}\n".encode())
        log.write(f"{line.syslog}\n".encode())
    return line


def powered_processes(node: NodeDir) -> dict[str, int]:
    """Return the PIDs on a machine by role: ``node``, ``agent`` and ``task``.

    Processes that have ended are left out, even if their PID was reused.
    """
    try:
        noted = json.loads(node.processes.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return {role: pid for role, (pid, started) in noted.items() if is_alive(pid, started)}


def machine_processes(node: NodeDir) -> list[int]:
    """Return the PIDs on a machine, that of its node process first.

    Raises:
        BackendError: the machine is powered off.

    """
    root = _powered(node)["node"]
    return [root, *descendants(root)]


def rank_processes(node: NodeDir) -> list[int]:
    """Return the PIDs of the rank on a machine, that of its main process first.

    Raises:
        BackendError: the machine is powered off, or no rank runs on it.

    """
    processes = _powered(node)
    if "task" not in processes:
        raise BackendError(f"no rank runs on {node.path.name}")
    main, others = processes["task"], {processes["node"], *_tree(processes.get("agent"))}
    below = [pid for pid in machine_processes(node) if pid not in others and pid != main]
    return [main, *below]


def kill_rank(node: NodeDir) -> list[int]:
    """Send SIGKILL to the main process of the rank on a machine; return the PIDs that it hit.

    Raises:
        BackendError: as ``rank_processes``.

    """
    main = rank_processes(node)[0]
    send(main, signal.SIGKILL)
    return [main]


def power_off(node: NodeDir) -> list[int]:
    """End all processes on a machine at once, without notice; return the PIDs that it hit.

    Raises:
        BackendError: as ``machine_processes``.

    """
    root = machine_processes(node)[0]
    send(root, signal.SIGSTOP)  # so that it starts and reports nothing meanwhile
    hit = machine_processes(node)
    kill_below(root)
    send(root, signal.SIGKILL)
    return hit


def hang(node: NodeDir) -> list[int]:
    """Send SIGSTOP to all processes on a machine, like a hung kernel; return their PIDs.

    Raises:
        BackendError: as ``machine_processes``.

    """
    return _stop_all(node, machine_processes)


def hang_rank(node: NodeDir) -> list[int]:
    """Send SIGSTOP to all processes of the rank on a healthy machine; return their PIDs.

    Raises:
        BackendError: as ``rank_processes``.

    """
    return _stop_all(node, rank_processes)


def _powered(node: NodeDir) -> dict[str, int]:
    processes = powered_processes(node)
    if "node" not in processes:
        raise BackendError(f"{node.path.name} is not powered on")
    return processes


def _tree(root: int | None) -> list[int]:
    return [] if root is None else [root, *descendants(root)]


def _stop_all(node: NodeDir, processes: Callable[[NodeDir], list[int]]) -> list[int]:
    """Send SIGSTOP to the processes, and to those that they start meanwhile."""
    stopped: list[int] = []
    while fresh := [pid for pid in processes(node) if pid not in stopped]:
        for pid in fresh:
            send(pid, signal.SIGSTOP)
        stopped += fresh
    return stopped


def _next_sequence(kmsg: Path) -> int:
    """Return the sequence number after the last record; 0 for the first one of a boot."""
    with kmsg.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        numbers = _SEQUENCE.findall(file.read())
    return int(numbers[-1]) + 1 if numbers else 0
