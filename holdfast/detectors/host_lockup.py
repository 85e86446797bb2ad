"""A kernel that is stuck, or that has lost its way.

HyperPod counts these as *SoftwareError* and repairs nothing; a node that stops working for it
falls silent, and that is acted upon.
"""

from typing import Final

from holdfast.detectors.contract import Detector, Profile
from holdfast.detectors.log_rules import LogRule, log_detector
from holdfast.model.health import Severity
from holdfast.model.names import Condition, Reason

FAMILY: Final = "lockup"

_NPD: Final = "node-problem-detector, kernel-monitor.json"
_STALL: Final = r"(?:rcu: )?INFO: (?P<device>rcu_\w{1,20}) "


def _rule(
    reason: Reason, mark: str, pattern: str, example: str, source: str, *, is_stuck: bool = False
) -> LogRule:
    return LogRule(
        mark=mark,
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
        "blocked for more than",
        r"INFO: task (?P<device>[^\n]{1,64}?):[0-9]{1,10} blocked for more than [0-9]{1,6} seconds",
        "INFO: task kcompactd1:1177 blocked for more than 120 seconds.",
        f"Linux, kernel/hung_task.c; {_NPD} (TaskHung)",
        is_stuck=True,
    ),
    _rule(
        Reason.SOFT_LOCKUP,
        "soft lockup",
        r"(?:NMI )?(?:watchdog: )?BUG: soft lockup - (?P<device>CPU#[0-9]{1,5}) stuck for",
        "watchdog: BUG: soft lockup - CPU#0 stuck for 27s! [cuda-EvtHandlr:2255424]",
        "Linux, kernel/watchdog.c; EKS node monitoring agent (SoftLockup)",
        is_stuck=True,
    ),
    _rule(
        Reason.HARD_LOCKUP,
        "hard LOCKUP",
        r"(?:NMI )?(?:watchdog: )?Watchdog detected hard LOCKUP on (?P<device>cpu [0-9]{1,5})",
        "watchdog: Watchdog detected hard LOCKUP on cpu 3",
        "Linux, kernel/watchdog.c",
        is_stuck=True,
    ),
    _rule(
        Reason.RCU_STALL,
        "self-detected stall",
        rf"{_STALL}self-detected stall on CPU",
        "rcu: INFO: rcu_sched self-detected stall on CPU",
        "Linux, kernel/rcu/tree_stall.h",
        is_stuck=True,
    ),
    _rule(
        Reason.RCU_STALL,
        "detected stalls on",
        rf"{_STALL}detected stalls on CPUs/tasks",
        "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
        "Linux, kernel/rcu/tree_stall.h",
        is_stuck=True,
    ),
    _rule(
        Reason.RCU_STALL,
        "detected expedited stalls",
        rf"{_STALL}detected expedited stalls on CPUs/tasks",
        "rcu: INFO: rcu_sched detected expedited stalls on CPUs/tasks: { 3-... } 21 jiffies",
        "Linux, kernel/rcu/tree_exp.h",
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
        "BUG: unable to handle",
        r"BUG: unable to handle (?:kernel|page fault)",
        "BUG: unable to handle kernel NULL pointer dereference at 0000000000000008",
        f"Linux, arch/x86/mm/fault.c; {_NPD} (KernelOops)",
    ),
    _rule(
        Reason.KERNEL_OOPS,
        "BUG: kernel NULL pointer dereference",
        r"BUG: kernel NULL pointer dereference",
        "BUG: kernel NULL pointer dereference, address: 0000000000000008",
        f"Linux, arch/x86/mm/fault.c; {_NPD} (KernelOops)",
    ),
    _rule(
        Reason.KERNEL_OOPS,
        "divide error",
        r"divide error: 0000 \[#[0-9]{1,6}\]",
        "divide error: 0000 [#1] SMP",
        f"Linux, arch/x86/kernel/traps.c; {_NPD} (KernelOops)",
    ),
    _rule(
        Reason.KERNEL_OOPS,
        "Oops: ",
        r"Oops: [^\n]{0,80}?\[#[0-9]{1,6}\]",
        "Oops: 0002 [#1] SMP NOPTI",
        "Linux, arch/x86/kernel/dumpstack.c",
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
        r"(?P<device>[\w:/.+ -]{1,15})\[[0-9]{1,10}\]: segfault at [^\n]{1,200}? in libnccl\.so",
        (
            "pt_main_thread[2536443]: segfault at 7f797fe00000 ip 00007f7c7ac69996 "
            "sp 00007f7c12fd7c30 error 4 in libnccl.so.2[7f7c7ac00000+d3d3000]"
        ),
        "Linux, arch/x86/mm/fault.c; EKS node monitoring agent (NvidiaNCCLError)",
    ),
)


def build(_: Profile) -> Detector:
    """The detector; all profiles agree."""
    return log_detector("host-lockup", FAMILY, RULES)
