"""Files of Holdfast beside a checkpoint directory: frameworks fail on foreign entries in it."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from holdfast.kit.files import storage_error, write_durably
from holdfast.model.errors import BackendError

_NOT_HERE: Final = frozenset((errno.EACCES, errno.EPERM, errno.EROFS))


def resolved(folder: Path) -> Path:
    """Return the path of a directory without symbolic links.

    Users choose the path: links that form a loop, and a chain of links that is too long to follow,
    stay in the result, and using it raises ``OSError``.
    """
    try:
        return Path(os.path.realpath(folder))
    except RecursionError:  # Python follows more links than the kernel, each by one call
        return folder.absolute()


def places(folder: Path, suffix: str) -> Iterator[Path]:
    """Yield the places of a file of a checkpoint directory, the preferred one first.

    That is beside the directory. In a directory that is a mount point it is in the directory: what
    is beside that is not on the volume. So it is if nothing can be written beside it. There is at
    least one place, even if the directory cannot be read, and no path raises.
    """
    path = resolved(folder)
    is_mount = os.path.ismount(path)
    if not is_mount:
        yield path.with_name(f".{path.name}{suffix}")
    if is_mount or os.path.isdir(path):
        yield path / suffix


def write_beside(folder: Path, suffix: str, data: bytes, *, may_be_inside: bool = True) -> None:
    """Write a file of a checkpoint directory durably.

    Args:
        folder: the checkpoint directory.
        suffix: suffix of the file beside it.
        data: content.
        may_be_inside: whether the framework ignores foreign entries in the directory.

    Raises:
        BackendError: the file cannot be written.

    """
    paths = [
        path for path in places(folder, suffix) if may_be_inside or path.parent != resolved(folder)
    ]
    if not paths:
        raise BackendError(
            f"cannot write {suffix} of {folder}: it is a mount point; use a directory in it"
        )
    for path in paths:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_durably(path, data)
        except OSError as error:
            if error.errno not in _NOT_HERE or path == paths[-1]:
                raise storage_error(error, path) from error
            continue
        return
