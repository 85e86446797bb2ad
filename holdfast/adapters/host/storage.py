"""What a failure to write a file means."""

import errno
from pathlib import Path

from holdfast.model.errors import BackendError, StorageFull


def storage_error(error: OSError, path: Path) -> BackendError:
    """The error of ours for ``error``, which came when ``path`` was written."""
    why = f"cannot write {path}: {error.strerror or error}"
    return StorageFull(why) if error.errno in (errno.ENOSPC, errno.EDQUOT) else BackendError(why)
