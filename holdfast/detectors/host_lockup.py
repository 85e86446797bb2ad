"""Lockups and errors of the kernel.

HyperPod counts these as *SoftwareError* and repairs nothing; a node that stops working because of
one sends no heartbeats, which leads to a repair.
"""

from typing import Final

from holdfast.detectors.contract import Detector, Profile
from holdfast.detectors.log_rules import LogRule, log_detector
from holdfast.model.health import Severity
from holdfast.model.names import Condition, Reason

FAMILY: Final = "lockup"

_NPD: Final = "node-problem-detector, kernel-monitor.json"
_FAULT_LINES: Final = "Linux, arch/x86/mm/fault.c, arch/x86/kernel/traps.c and arch/arm64"
_TASK: Final = r"INFO: task (?P<device>[^\n]{1,64}?):[0-9]{1,10} "
_EXCEPTIONS: Final = (
    "divide error|general protection fault|invalid opcode|stack segment|double fault"
)
_CRASH: Final = (
    r"(?:traps: )?(?P<device>[\w:/.+ #-]{1,15})\[[0-9]{1,10}\]:? "
    r"(?:segfault at|unhandled |general protection fault |trap )[^\n]{1,200}? in "
)


def _rule(
    reason: Reason, keyword: str, pattern: str, example: str, source: str, *, is_stuck: bool = False
) -> LogRule:
    return LogRule(
        keyword=keyword,
        pattern=pattern,
        example=example,
        condition=Condition.KERNEL_DEADLOCK if is_stuck else Condition.SOFTWARE,
        reason=reason,
        severity=Severity.WARNING,
        source=source,
    )


RULES: Final = (
    _rule(
        Reason.TASK_HUNG,
        "INFO: ",
        rf"{_TASK}blocked (?:in I/O wait )?for more than [0-9]{{1,10}} seconds",
        "INFO: task kcompactd1:1177 blocked for more than 120 seconds.",
        f"Linux, kernel/hung_task.c; {_NPD} (TaskHung)",
        is_stuck=True,
    ),
    _rule(
        Reason.TASK_HUNG,
        "INFO: ",
        rf"{_TASK}(?:<\w{{1,10}}> )?(?:is )?blocked on an? (?:mutex|semaphore|rw-semaphore)\b",
        "INFO: task python:4242 is blocked on a mutex likely owned by task kworker/u64:3:1177.",
        "Linux, kernel/hung_task.c: the owner of the lock",
        is_stuck=True,
    ),
    _rule(
        Reason.SOFT_LOCKUP,
        "BUG: ",
        r"(?:NMI )?(?:watchdog: )?BUG: soft lockup (?:- |detected on )(?P<device>CPU#[0-9]{1,5})"
        r"(?: stuck for|!)",
        "watchdog: BUG: soft lockup - CPU#0 stuck for 27s! [cuda-EvtHandlr:2255424]",
        "Linux, kernel/watchdog.c; EKS node monitoring agent (SoftLockup)",
        is_stuck=True,
    ),
    _rule(
        Reason.HARD_LOCKUP,
        "hard LOCKUP",
        r"(?:NMI )?(?:watchdog: )?(?:CPU[0-9]{1,5}: )?"
        r"Watchdog detected hard LOCKUP on (?P<device>(?:cpu|CPU) [0-9]{1,5})",
        "watchdog: Watchdog detected hard LOCKUP on cpu 3",
        "Linux, kernel/watchdog.c",
        is_stuck=True,
    ),
    _rule(
        Reason.WORKQUEUE_LOCKUP,
        "BUG: ",
        r"BUG: workqueue lockup - pool",
        "BUG: workqueue lockup - pool cpus=4 node=0 flags=0x0 nice=0 stuck for 30s!",
        "Linux, kernel/workqueue.c",
        is_stuck=True,
    ),
    _rule(
        Reason.RCU_STALL,
        "INFO: ",
        r"(?:rcu: )?INFO: (?P<device>rcu_\w{1,20}) (?:self-)?detected (?:expedited )?stalls? on "
        r"(?:CPU|tasks)",
        "rcu: INFO: rcu_sched self-detected stall on CPU",
        "Linux, kernel/rcu/tree_stall.h, tree_exp.h and tasks.h",
        is_stuck=True,
    ),
    _rule(
        Reason.RCU_STALL,
        "kthread starved for",
        r"(?:rcu: )?(?P<device>rcu_\w{1,20}) kthread starved for [0-9]{1,20} jiffies",
        "rcu: rcu_preempt kthread starved for 10495 jiffies! g13757 f0x0 RCU_GP_WAIT_FQS(5) "
        "->state=0x0 ->cpu=0",
        "Linux, kernel/rcu/tree_stall.h",
        is_stuck=True,
    ),
    _rule(
        Reason.UNREGISTER_NET_DEVICE,
        "unregister_netdevice",
        r"unregister_netdevice: waiting for (?P<device>\S{1,15}) to become free\. Usage count",
        "unregister_netdevice: waiting for lo to become free. Usage count = 1",
        f"Linux, net/core/dev.c; {_NPD} (UnregisterNetDevice)",
    ),
    _rule(
        Reason.KERNEL_PANIC,
        "Kernel panic",
        r"Kernel panic - not syncing",
        "Kernel panic - not syncing: hung_task: blocked tasks",
        "Linux, kernel/panic.c",
    ),
    _rule(
        Reason.KERNEL_OOPS,
        "BUG: ",
        r"BUG: unable to handle (?:kernel|page fault)",
        "BUG: unable to handle kernel NULL pointer dereference at 0000000000000008",
        f"Linux, arch/x86/mm/fault.c; {_NPD} (KernelOops)",
    ),
    _rule(
        Reason.KERNEL_OOPS,
        "BUG: ",
        r"BUG: kernel NULL pointer dereference",
        "BUG: kernel NULL pointer dereference, address: 0000000000000008",
        f"Linux, arch/x86/mm/fault.c; {_NPD} (KernelOops)",
    ),
    _rule(
        Reason.KERNEL_OOPS,
        " [#",
        rf"(?:Oops: |Internal error: |{_EXCEPTIONS})[^\n]{{0,100}}?(?<=[0-9a-f] )\[#[0-9]{{1,6}}\]",
        "Oops: 0002 [#1] SMP NOPTI",
        f"Linux, arch/x86/kernel/traps.c and arch/arm64/kernel/traps.c; {_NPD} (KernelOops)",
    ),
    _rule(
        Reason.KERNEL_OOPS,
        "Unable to handle kernel",
        r"Unable to handle kernel [\w ]{1,60} at virtual address",
        "Unable to handle kernel NULL pointer dereference at virtual address 0000000000000360",
        "Linux, arch/arm64/mm/fault.c",
    ),
    _rule(
        Reason.KERNEL_BUG,
        "kernel BUG at",
        r"kernel BUG at \S{1,200}:[0-9]{1,6}!",
        "kernel BUG at mm/slub.c:3952!",
        "Linux, lib/bug.c; EKS node monitoring agent (KernelBug)",
    ),
    _rule(
        Reason.MAX_OPEN_FILES,
        "file-max limit",
        r"VFS: file-max limit [0-9]{1,20} reached",
        "VFS: file-max limit 1000000 reached",
        "Linux, fs/file_table.c; EKS node monitoring agent (ApproachingMaxOpenFiles)",
    ),
    _rule(
        Reason.NCCL_FAILED,
        "libnccl.so",
        rf"{_CRASH}libnccl\.so",
        (
            "pt_main_thread[2536443]: segfault at 7f797fe00000 ip 00007f7c7ac69996 "
            "sp 00007f7c12fd7c30 error 4 in libnccl.so.2[7f7c7ac00000+d3d3000]"
        ),
        f"{_FAULT_LINES}; EKS node monitoring agent (NvidiaNCCLError)",
    ),
    _rule(
        Reason.CUDA_CRASHED,
        "libcuda.so",
        rf"{_CRASH}libcuda\.so",
        (
            "llama-server[16980]: segfault at 20d803fdc ip 00007dbe270a3e47 sp 00007ffff184bf00 "
            "error 4 in libcuda.so.570.133.20[4a3e47,7dbe26d79000+d1c000] likely on CPU 29 (core "
            "14, socket 0)"
        ),
        f"{_FAULT_LINES}; most often the process passed a bad pointer",
    ),
)


def build(_: Profile) -> Detector:
    """Return the detector; all profiles agree on it."""
    return log_detector("host-lockup", FAMILY, RULES)
