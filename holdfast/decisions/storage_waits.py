"""Kernel functions in which a process waits for a file system or a block device. Pure.

``/proc/PID/wchan`` names the innermost function that is not of the scheduler (fs/proc/base.c of
Linux). Sleep of FUSE, CephFS and Lustre may be interruptible, so the state of the process does not
show it.
"""

import re
from typing import Final

ROWS: Final[tuple[tuple[str, str, str], ...]] = (
    ("NFS", r"rpc_wait_bit_killable|__rpc_execute|rpc_\w+|nfs_\w+|nfs[34]_\w+|pnfs_\w+",
     "net/sunrpc/sched.c, fs/nfs/inode.c"),
    ("Lustre", r"ptlrpc_\w+|ldlm_\w+|cl_sync_io_wait\w*|osc_\w+|ll_\w+|obd_\w+",
     "lustre/ptlrpc/client.c, lustre/ldlm/ldlm_request.c, lustre/obdclass/cl_io.c"),
    ("FUSE", r"request_wait_answer|__fuse_request_send|fuse_\w+|virtio_fs_\w+", "fs/fuse/dev.c"),
    ("CephFS", r"ceph_\w+", "fs/ceph/mds_client.c"),
    ("SMB", r"wait_for_response|cifs_\w+|smb2_\w+", "fs/smb/client/transport.c"),
    ("9P", r"p9_client_rpc|p9_virtio_\w+|v9fs_\w+", "net/9p/client.c"),
    ("GPFS", r"cxiWaitEventWait", "IBM Storage Scale, by reports of its users"),
    ("a frozen file system", r"percpu_rwsem_wait|__?sb_start_write|mnt_want_write\w*",
     "kernel/locking/percpu-rwsem.c, fs/super.c, fs/namespace.c"),
    ("the page cache", r"folio_wait_\w+|__folio_lock\w*|wait_on_page_\w+|__lock_page\w*"
     r"|balance_dirty_pages\w*|wait_on_buffer|__wait_on_buffer|bit_wait_io\w*",
     "mm/filemap.c, mm/page-writeback.c, fs/buffer.c"),
    ("a directory lookup", r"d_alloc_parallel|lookup_slow|autofs_wait", "fs/dcache.c, fs/namei.c, "
     "fs/autofs/waitq.c"),
    ("a block device", r"blk_\w+|submit_bio_wait|__blkdev_\w+|bt_get|rq_qos_wait|wbt_wait"
     r"|io_schedule\w*|iomap_\w+|__iomap_dio_rw|dio_\w+|do_blockdev_direct_IO|nvme_\w+|scsi_\w+",
     "block/blk-core.c, block/bio.c, block/blk-rq-qos.c, fs/iomap/direct-io.c"),
    ("a local file system", r"jbd2_\w+|wait_transaction_locked|add_transaction_credits"
     r"|ext4_\w+|xfs_\w+|xlog_\w+|btrfs_\w+|zio_wait|zfs_\w+|cv_wait_common|txg_wait_\w+",
     "fs/jbd2/transaction.c, fs/xfs/xfs_log.c, module/zfs/zio.c of OpenZFS"),
)  # fmt: skip
"""Storage, functions, and the source files that define them."""

_TABLE: Final = tuple((storage, re.compile(functions)) for storage, functions, _ in ROWS)
_SUFFIX: Final = re.compile(r"(?:\.(?:constprop|isra|part|cold|llvm)[.\d]*)+$")
"""What a compiler appends to the name of a function that it has changed."""


def storage_of(wait_channel: str) -> str:
    """Return the storage in whose function a process waits; empty if it waits for none."""
    name = _SUFFIX.sub("", wait_channel)
    return next((storage for storage, pattern in _TABLE if pattern.fullmatch(name)), "")
