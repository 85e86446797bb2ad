"""Disk failures in the kernel log.

A single I/O error is a notice; it becomes a fault when the kernel gives up the disk. Then the node
may still work, so that it is repaired once its jobs have ended.
"""

from functools import partial
from typing import Final

from holdfast.detectors.contract import Detector, Profile
from holdfast.detectors.log_rules import log_detector, notice, reboot
from holdfast.model.names import Condition, Reason

FAMILY: Final = "disk"

_NPD: Final = "node-problem-detector, kernel-monitor.json"
_NAME: Final = r"(?P<device>[\w!.-]{1,32})"
_REAL_DISK: Final = r"(?P<device>(?!loop|fd[0-9]|sr[0-9])[\w!.-]{1,32})"
_NVME: Final = r"(?P<device>nvme[0-9]{1,4})"
_STATUS: Final = (
    r"(?P<device>nvme[0-9]{1,4}(?:c[0-9]{1,4})?(?:n[0-9]{1,4})?): "
    r"[\w ./-]{1,40}\(0x[0-9a-f]{1,2}\)(?: @ LBA [0-9]{1,20}, [0-9]{1,10} blocks)?, "
    r"[^\n()]{1,60} \("
)
_NVME_CORE: Final = "Linux, drivers/nvme/host/core.c; NVM Express Base Specification, status codes"
_notice: Final = partial(notice, Condition.DISK)

_FAULTS: Final = (
    reboot(
        Condition.DISK,
        Reason.NVME_TIMEOUT,
        " QID ",
        rf"nvme {_NVME}: I/O (?:tag )?[0-9]{{1,5}} [^\n]{{0,80}}?QID [0-9]{{1,5}} timeout"
        "(?!, completion polled)",
        "nvme nvme0: I/O 29 QID 1 timeout, aborting",
        "Linux, drivers/nvme/host/pci.c; kops issue 5694: a volume may recover; the count is "
        "Holdfast's",
        min_count=3,
    ),
    reboot(
        Condition.DISK,
        Reason.NVME_LOST,
        "after reset failure",
        rf"nvme {_NVME}: (?:Disabling|Removing) (?:device )?after reset failure",
        "nvme nvme4: Disabling device after reset failure: -19",
        "Linux, drivers/nvme/host/pci.c; gpud reboots",
    ),
    reboot(
        Condition.DISK,
        Reason.NVME_LOST,
        "after probe failure",
        rf"nvme {_NVME}: Removing after probe failure",
        "nvme nvme4: Removing after probe failure status: -19",
        "Linux, drivers/nvme/host/pci.c; gpud reboots",
    ),
    reboot(
        Condition.DISK,
        Reason.RAID_FAILED,
        "Disk failure on",
        rf"md/raid[\w:]{{1,32}}: Disk failure on {_NAME}[ ,]",
        "md/raid0md0: Disk failure on nvme0n1p1 detected, failing array.",
        "Linux, drivers/md; gpud reboots",
    ),
)

_NOTICES: Final = (
    _notice(
        Reason.IO_ERROR,
        "I/O error",
        rf"Buffer I/O error on dev(?:ice)? {_REAL_DISK},",
        "Buffer I/O error on dev dm-0, logical block 1066386, lost async page write",
        f"Linux, fs/buffer.c; {_NPD} (IOError)",
    ),
    _notice(
        Reason.IO_ERROR,
        "error, dev ",
        r"(?:(?:blk_update_request|print_req_error|end_request): )?(?:critical |recoverable )?"
        r"(?:I/O|medium|target|space allocation|nexus|timeout|transport|protection|device offline)"
        rf" error, dev {_REAL_DISK},",
        "I/O error, dev nvme0n1, sector 2048 op 0x0:(READ) flags 0x0 phys_seg 25 prio class 0",
        "Linux, block/blk-core.c; EKS node monitoring agent (BlockDeviceIOError)",
    ),
    _notice(
        Reason.IO_ERROR,
        "no available path - failing I/O",
        r"block (?P<device>nvme[0-9]{1,4}n[0-9]{1,4}): no available path - failing I/O",
        "block nvme1n1: no available path - failing I/O",
        "Linux, drivers/nvme/host/multipath.c",
    ),
    _notice(
        Reason.IO_ERROR,
        "attempt to access beyond end of device",
        r"(?:[\w./:+#-]{1,15}: )?attempt to access beyond end of device(?!\w)"
        r"(?:\n(?P<device>(?!loop)[\w!.-]{1,32}): rw=|$)",
        "kworker/u64:3: attempt to access beyond end of device\nnvme1n1p1: rw=4097, sector=24, "
        "nr_sectors = 8 limit=0",
        "Linux, block/blk-core.c: a file system is larger than its disk, or the disk shrank",
    ),
    _notice(
        Reason.NVME_MEDIA,
        " / sc 0x",
        rf"{_STATUS}sct 0x2 / sc 0x8[0-4]\)",
        "nvme0n1: Read(0x2) @ LBA 209715072, 8 blocks, Unrecovered Read Error (sct 0x2 / sc 0x81) "
        "DNR",
        f"{_NVME_CORE}: media and data integrity errors",
    ),
    _notice(
        Reason.NVME_STATUS,
        " / sc 0x",
        rf"{_STATUS}sct 0x(?:0 / sc 0x(?:4|5|6|82)|3 / sc 0x(?:[0-3]|6[0-9a-f]|7[0-9a-f]))\)",
        "nvme0n1: I/O Cmd(0x2) @ LBA 105272408, 256 blocks, I/O Error (sct 0x3 / sc 0x71) ",
        f"{_NVME_CORE}: errors of the device or of the path to it, not of the command",
    ),
    _notice(
        Reason.NVME_RESET,
        "CSTS=0x",
        rf"nvme {_NVME}: (?:controller is down; will reset|Device not ready; aborting \w{{1,20}})"
        "[:,] CSTS=0x",
        "nvme nvme1: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10",
        "Linux, drivers/nvme/host/pci.c: the kernel resets it, and reports one that stays away",
    ),
    _notice(
        Reason.NVME_RESET,
        "resetting controller due to",
        rf"nvme {_NVME}: resetting controller due to ",
        "nvme nvme0: resetting controller due to persistent internal error",
        "Linux, drivers/nvme/host/core.c: the device requests it",
    ),
    _notice(
        Reason.NFS_NOT_RESPONDING,
        "not responding",
        r"nfs: server (?P<device>\S{1,64}) not responding, (?:timed out|still trying)",
        "nfs: server 10.0.0.5 not responding, timed out",
        "Linux, fs/nfs; gpud notes it as an event",
    ),
    _notice(
        Reason.LUSTRE_CONNECTION,
        "in progress operations",
        r"Lustre: [\w.-]{1,80}: Connection to (?P<device>[\w.-]{1,64}) \(at [^\n()]{1,64}\) "
        "was lost;",
        "Lustre: fsx-OST0000-osc-ffff3000ef06c000: Connection to fsx-OST0000 (at 10.0.1.5@tcp) was "
        "lost; in progress operations using this service will wait for recovery to complete",
        "Lustre, lustre/ptlrpc/import.c: the client waits for the server",
    ),
    _notice(
        Reason.LUSTRE_CONNECTION,
        "in progress operations",
        r"LustreError: [0-9]{1,4}-[0-9a-f]{1,4}: [\w.-]{1,80}: This client was evicted by "
        r"(?P<device>[\w.-]{1,64});",
        "LustreError: 167-0: fsx-OST0000-osc-ffff3000ef06c000: This client was evicted by "
        "fsx-OST0000; in progress operations using this service will fail.",
        "Lustre, lustre/ptlrpc/import.c: the server has dropped the client",
    ),
)

RULES: Final = _FAULTS + _NOTICES


def build(_: Profile) -> Detector:
    """Return the detector; all profiles agree on it."""
    return log_detector("host-disk", FAMILY, RULES)
