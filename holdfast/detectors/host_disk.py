"""Disks and file systems: what the kernel says when one fails.

A single I/O error is a notice; it becomes a fault when the kernel gives up the disk or the file
system on it. Then the node may still work, so that it is repaired once its jobs have ended.
"""

from datetime import timedelta
from typing import Final

from holdfast.detectors.contract import Detector, Profile
from holdfast.detectors.log_rules import LogRule, log_detector
from holdfast.model.health import Remedy, Severity, Urgency
from holdfast.model.names import Condition, Reason

FAMILY: Final = "disk"

_NPD: Final = "node-problem-detector, kernel-monitor.json"
_NAME: Final = r"(?P<device>[\w!.-]{1,32})"
_REAL_DISK: Final = r"(?P<device>(?!loop|fd[0-9]|sr[0-9])[\w!.-]{1,32})"
_NVME: Final = r"(?P<device>nvme[0-9]{1,4})"


def _fault(
    condition: Condition,
    reason: Reason,
    mark: str,
    pattern: str,
    example: str,
    source: str,
    *,
    min_count: int = 1,
) -> LogRule:
    return LogRule(
        mark=mark,
        pattern=pattern,
        example=example,
        condition=condition,
        reason=reason,
        severity=Severity.FATAL,
        remedy=Remedy.REBOOT,
        urgency=Urgency.DEFERRED,
        min_count=min_count,
        window=timedelta(minutes=10),
        source=source,
    )


def _notice(reason: Reason, mark: str, pattern: str, example: str, source: str) -> LogRule:
    return LogRule(
        mark=mark,
        pattern=pattern,
        example=example,
        condition=Condition.DISK,
        reason=reason,
        severity=Severity.WARNING,
        source=source,
    )


_FAULTS: Final = (
    _fault(
        Condition.READONLY_FILESYSTEM,
        Reason.READONLY_FILESYSTEM,
        "Remounting filesystem read-only",
        rf"EXT[234]-fs \({_NAME}\): Remounting filesystem read-only",
        "EXT4-fs (nvme0n1p1): Remounting filesystem read-only",
        f"Linux, fs/ext4/super.c; {_NPD} (FilesystemIsReadOnly)",
    ),
    _fault(
        Condition.XFS_SHUTDOWN,
        Reason.XFS_SHUTDOWN,
        "Shutting down filesystem",
        rf"XFS \({_NAME}\): [^\n]{{1,200}}?Shutting down filesystem",
        "XFS (xvdb): Log I/O Error Detected.  Shutting down filesystem",
        f"Linux, fs/xfs/xfs_fsops.c; {_NPD} (XfsHasShutDown)",
    ),
    _fault(
        Condition.XFS_SHUTDOWN,
        Reason.XFS_SHUTDOWN,
        "has been shut down due to",
        rf"XFS \({_NAME}\): Filesystem has been shut down due to (?!user)",
        "XFS (nvme1n1): Filesystem has been shut down due to log error (0x2).",
        f"Linux, fs/xfs/xfs_fsops.c; {_NPD} (XfsHasShutDown)",
    ),
    _fault(
        Condition.DISK,
        Reason.NVME_TIMEOUT,
        " QID ",
        rf"nvme {_NVME}: I/O (?:tag )?[0-9]{{1,5}} [^\n]{{0,80}}?QID [0-9]{{1,5}} timeout"
        "(?!, completion polled)",
        "nvme nvme0: I/O 29 QID 1 timeout, aborting",
        "Linux, drivers/nvme/host/pci.c; kops issue 5694: a volume may recover; how often is our "
        "own judgement",
        min_count=3,
    ),
    _fault(
        Condition.DISK,
        Reason.NVME_LOST,
        "after reset failure",
        rf"nvme {_NVME}: (?:Disabling|Removing) (?:device )?after reset failure",
        "nvme nvme4: Disabling device after reset failure: -19",
        "Linux, drivers/nvme/host/pci.c; gpud reboots",
    ),
    _fault(
        Condition.DISK,
        Reason.NVME_LOST,
        "after probe failure",
        rf"nvme {_NVME}: Removing after probe failure",
        "nvme nvme4: Removing after probe failure status: -19",
        "Linux, drivers/nvme/host/pci.c; gpud reboots",
    ),
    _fault(
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
        "Buffer I/O error on dev",
        rf"Buffer I/O error on dev(?:ice)? {_REAL_DISK},",
        "Buffer I/O error on dev dm-0, logical block 1066386, lost async page write",
        f"Linux, fs/buffer.c; {_NPD} (IOError)",
    ),
    _notice(
        Reason.IO_ERROR,
        "error, dev ",
        r"(?:(?:blk_update_request|print_req_error|end_request): )?(?:critical )?"
        rf"(?:I/O|medium|target|space allocation|nexus|timeout|transport) error, dev {_REAL_DISK},",
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
        "log I/O error",
        rf"XFS \({_NAME}\): log I/O error -[0-9]",
        "XFS (md127): log I/O error -5",
        "Linux, fs/xfs/xfs_log.c",
    ),
    _notice(
        Reason.IO_ERROR,
        "attempt to access beyond end of device",
        r"(?:[\w./-]{1,64}: )?attempt to access beyond end of device",
        "attempt to access beyond end of device",
        "Linux, block/blk-core.c",
    ),
    _notice(
        Reason.EXT4_ERROR,
        "EXT4-fs error",
        rf"EXT4-fs error \(device {_NAME}\)",
        "EXT4-fs error (device sdf) in ext4_reserve_inode_write:5795: Journal has aborted",
        f"Linux, fs/ext4/super.c; {_NPD} (Ext4Error)",
    ),
    _notice(
        Reason.EXT4_WARNING,
        "EXT4-fs warning",
        rf"EXT4-fs warning \(device {_NAME}\)",
        "EXT4-fs warning (device sdf): ext4_end_bio:343: I/O error 10 writing to inode 12",
        f"Linux, fs/ext4/super.c; {_NPD} (Ext4Warning)",
    ),
    _notice(
        Reason.JOURNAL_ABORTED,
        "JBD2: Error",
        r"JBD2: Error -[0-9]{1,4} detected when updating journal superblock for "
        r"(?P<device>[\w!.-]{1,32}?)(?:-[0-9]{1,4})?\.?$",
        "JBD2: Error -5 detected when updating journal superblock for sdk-8.",
        "Linux, fs/jbd2/journal.c",
    ),
    _notice(
        Reason.JOURNAL_ABORTED,
        "Aborting journal on device",
        r"Aborting journal on device (?P<device>[\w!.-]{1,32}?)(?:-[0-9]{1,4})?\.?$",
        "Aborting journal on device nvme0n1p1-8.",
        "Linux, fs/jbd2/journal.c",
    ),
    _notice(
        Reason.NFS_NOT_RESPONDING,
        "not responding",
        r"nfs: server (?P<device>\S{1,64}) not responding, (?:timed out|still trying)",
        "nfs: server 10.0.0.5 not responding, timed out",
        "Linux, fs/nfs; gpud notes it as an event",
    ),
)

RULES: Final = _FAULTS + _NOTICES


def build(_: Profile) -> Detector:
    """The detector; all profiles agree."""
    return log_detector("host-disk", FAMILY, RULES)
