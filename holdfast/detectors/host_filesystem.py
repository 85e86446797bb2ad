"""Unwritable or damaged file systems in the kernel log.

A single error is a notice; it becomes a fault when the kernel gives up the file system. Then the
node may still work, so that it is repaired once its jobs have ended. A file system that an
administrator shut down is neither.
"""

from functools import partial
from typing import Final

from holdfast.detectors.contract import Detector, Profile
from holdfast.detectors.host_disk import FAMILY
from holdfast.detectors.log_rules import log_detector, notice, reboot
from holdfast.model.names import Condition, Reason

_NPD: Final = "node-problem-detector, kernel-monitor.json"
_NAME: Final = r"(?P<device>(?!loop|fd[0-9]|sr[0-9])[\w!.-]{1,32})"
_JOURNAL: Final = (
    r"(?P<device>dm-[0-9]{1,4}|(?!loop|fd[0-9]|sr[0-9])[\w!.-]{1,32}?)(?:-[0-9]{1,4})?\.?$"
)
"""Name of its device, from ext4 on with the number of its inode."""

_EXT4: Final = rf"EXT[234]-fs \({_NAME}\): "
_XFS: Final = rf"XFS \({_NAME}\): "
_BTRFS: Final = rf"\(device {_NAME}(?::? state \w{{1,16}})?\)"
_notice: Final = partial(notice, Condition.DISK)

_FAULTS: Final = (
    reboot(
        Condition.READONLY_FILESYSTEM,
        Reason.READONLY_FILESYSTEM,
        "Remounting filesystem read-only",
        rf"{_EXT4}Remounting filesystem read-only",
        "EXT4-fs (nvme0n1p1): Remounting filesystem read-only",
        f"Linux, fs/ext4/super.c; {_NPD} (FilesystemIsReadOnly)",
    ),
    reboot(
        Condition.READONLY_FILESYSTEM,
        Reason.READONLY_FILESYSTEM,
        "BTRFS",
        rf"BTRFS info {_BTRFS}: forced readonly",
        "BTRFS info (device nvme1n1: state EA): forced readonly",
        "Linux, fs/btrfs/messages.c: as ext4 does after an error",
    ),
    reboot(
        Condition.XFS_SHUTDOWN,
        Reason.XFS_SHUTDOWN,
        "Shutting down filesystem",
        rf"{_XFS}(?!User initiated|[^\n]{{0,80}}xfs_fs_goingdown)"
        r"[^\n]{1,200}?Shutting down filesystem",
        "XFS (xvdb): Log I/O Error Detected.  Shutting down filesystem",
        f"Linux, fs/xfs/xfs_fsops.c; {_NPD} (XfsHasShutDown)",
    ),
    reboot(
        Condition.XFS_SHUTDOWN,
        Reason.XFS_SHUTDOWN,
        "has been shut down due to",
        rf"{_XFS}Filesystem has been shut down due to (?!user)",
        "XFS (nvme1n1): Filesystem has been shut down due to log error (0x2).",
        f"Linux, fs/xfs/xfs_fsops.c; {_NPD} (XfsHasShutDown)",
    ),
)

_EXT4_NOTICES: Final = (
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
        Reason.SUPERBLOCK_WRITE,
        " superblock",
        rf"{_EXT4}(?:I/O error while writing superblock|previous I/O error to superblock detected)",
        "EXT4-fs (nvme0n1p1): I/O error while writing superblock",
        "Linux, fs/ext4/super.c",
    ),
    _notice(
        Reason.EXT4_WARNING,
        "potential data loss",
        rf"{_EXT4}failed to convert unwritten extents to written extents",
        "EXT4-fs (vdb1): failed to convert unwritten extents to written extents -- potential data "
        "loss!  (inode 2, error -30)",
        "Linux, fs/ext4/extents.c",
    ),
    _notice(
        Reason.JOURNAL_ABORTED,
        " superblock",
        r"JBD2?: (?:Error -[0-9]{1,4}|I/O error)(?: detected)? when updating journal superblock "
        rf"for {_JOURNAL}",
        "JBD2: Error -5 detected when updating journal superblock for sdk-8.",
        "Linux, fs/jbd2/journal.c",
    ),
    _notice(
        Reason.JOURNAL_ABORTED,
        "Aborting journal on device",
        rf"Aborting journal on device {_JOURNAL}",
        "Aborting journal on device nvme0n1p1-8.",
        "Linux, fs/jbd2/journal.c",
    ),
    _notice(
        Reason.IO_ERROR,
        "while flushing file data on",
        rf"JBD2: Detected IO errors (?:-?[0-9]{{1,4}} )?while flushing file data on {_JOURNAL}",
        "JBD2: Detected IO errors while flushing file data on dm-11-45",
        "Linux, fs/jbd2/commit.c",
    ),
)

_XFS_NOTICES: Final = (
    _notice(
        Reason.IO_ERROR,
        "I/O error",
        rf"{_XFS}log I/O error -[0-9]",
        "XFS (md127): log I/O error -5",
        "Linux, fs/xfs/xfs_log.c",
    ),
    _notice(
        Reason.XFS_METADATA,
        "I/O error",
        rf"{_XFS}[Mm]etadata I/O [Ee]rror(?: in \"|: block )",
        'XFS (vdb): metadata I/O error in "xfs_trans_read_buf_map" at daddr 0x28 len 8 error 74',
        "Linux, fs/xfs/xfs_buf.c",
    ),
    _notice(
        Reason.XFS_METADATA,
        "Metadata ",
        rf"{_XFS}Metadata (?:corruption|CRC error) detected at ",
        "XFS (sda1): Metadata CRC error detected at xfs_agf_read_verify+0xd0/0xf0 [xfs], xfs_agf "
        "block 0x1",
        "Linux, fs/xfs/xfs_error.c",
    ),
    _notice(
        Reason.IO_ERROR,
        "writeback error on",
        rf"{_XFS}writeback error on ",
        "XFS (nvme1n1): writeback error on inode 132, offset 0, sector 456",
        "Linux, fs/xfs/xfs_aops.c",
    ),
    _notice(
        Reason.XFS_METADATA,
        "log mount",
        rf"{_XFS}log mount(?:/recovery)? failed",
        "XFS (pmem1): log mount/recovery failed: error -117",
        "Linux, fs/xfs/xfs_log.c",
    ),
)

_BTRFS_NOTICES: Final = (
    _notice(
        Reason.SUPERBLOCK_WRITE,
        "BTRFS",
        rf"BTRFS (?:error|warning) {_BTRFS}: (?:error writing primary super block to device|"
        r"lost (?:page|sb|super block) write due to IO error on)",
        "BTRFS error (device nvme1n1): error writing primary super block to device 1",
        "Linux, fs/btrfs/disk-io.c",
    ),
    _notice(
        Reason.IO_ERROR,
        "BTRFS",
        r"BTRFS error \(device [^()\n]{1,60}\): bdev (?:/dev/)?(?:mapper/)?"
        r"(?P<device>(?!loop)[\w!.-]{1,32}) errs: wr [0-9]",
        "BTRFS error (device sda2): bdev /dev/sdb2 errs: wr 5, rd 0, flush 1, corrupt 0, gen 0",
        "Linux, fs/btrfs/volumes.c: at a new error; a mount reports old ones at level info",
    ),
    _notice(
        Reason.BTRFS_ERROR,
        "BTRFS",
        rf"BTRFS (?:error|critical|warning(?=[^\n]{{1,70}}: csum failed)) {_BTRFS}: ",
        "BTRFS critical (device dm-0): corrupt leaf: block=28653215744 slot=22",
        "Linux, fs/btrfs",
    ),
    _notice(
        Reason.BTRFS_ERROR,
        "BTRFS",
        rf"BTRFS: error {_BTRFS} in \w{{1,60}}:[0-9]{{1,6}}: errno=-",
        "BTRFS: error (device dm-0) in btrfs_commit_transaction:2376: errno=-5 IO failure (Error "
        "while writing out transaction)",
        "Linux, fs/btrfs/messages.c: the transaction is aborted",
    ),
)

RULES: Final = _FAULTS + _EXT4_NOTICES + _XFS_NOTICES + _BTRFS_NOTICES


def build(_: Profile) -> Detector:
    """Return the detector; all profiles agree on it."""
    return log_detector("host-filesystem", FAMILY, RULES)
