"""Atomic and durable writes of files, and the errors of writes that failed."""

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.model.errors import BackendError, StorageFull

_PRIVATE: Final = 0o600
_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def write_atomically(path: Path, text: str) -> None:
    """Replace the file with ``text``: a reader sees the old or the new content, never a part."""
    _replace(path, text.encode("utf-8"), is_durable=False)


def write_in_place(path: Path, text: str) -> None:
    """Overwrite the file with ``text``, without a rename that a watch of the directory would see.

    A reader may see a part of the text if it is longer than a page; its author keeps it short. The
    directory may belong to somebody else: a link is not followed, and a FIFO does not block.

    Raises:
        OSError: the file cannot be written, or is not a regular file.

    """
    data = text.encode("utf-8")
    handle = os.open(path, _FLAGS, 0o644)
    try:
        _check_regular(handle, path)
        os.pwrite(handle, data, 0)
        os.ftruncate(handle, len(data))  # the text before may have been longer
    finally:
        os.close(handle)


def write_durably(path: Path, data: bytes) -> None:
    """Write like ``write_atomically``; the new content also survives a loss of power."""
    _replace(path, data, is_durable=True)
    sync_directory(path.parent)


def open_to_append(path: Path, mode: int = 0o644) -> int:
    """Return the descriptor of a regular file, opened for appending and created if it is missing.

    The directory may belong to somebody else: a link is not followed, and a FIFO does not block.

    Raises:
        OSError: the file cannot be opened, or is not a regular file.

    """
    handle = os.open(path, _FLAGS | os.O_APPEND, mode)
    try:
        _check_regular(handle, path)
    except OSError:
        os.close(handle)
        raise
    return handle


def open_lock(path: Path, *, is_local: bool = False) -> int:
    """Return the descriptor of a file for ``flock``, created if it is missing.

    Who may open a file may lock it, even if only for reading, so no other user may open this one.

    Args:
        path: of the file.
        is_local: it is not on NFS, which locks no file that is open for reading. The file is then
            not open for writing, so that its file system can be remounted read-only.

    Raises:
        OSError: the file cannot be opened, is not a regular file, or belongs to another user.

    """
    flags = os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(path, flags | (os.O_RDONLY if is_local else os.O_RDWR), _PRIVATE)
    except OSError as error:
        if is_local or error.errno != errno.EROFS:
            raise
        handle = os.open(path, flags | os.O_RDONLY, _PRIVATE)
    try:
        _check_regular(handle, path)
        status = os.fstat(handle)
        if status.st_uid not in (0, os.geteuid()):
            raise OSError(errno.EPERM, f"belongs to user {status.st_uid}; remove it", str(path))
        if status.st_mode & 0o077:
            with suppress(OSError):  # it is root's, or on a read-only file system
                os.fchmod(handle, _PRIVATE)  # earlier releases let others open it
    except OSError:
        os.close(handle)
        raise
    return handle


def _check_regular(handle: int, path: Path) -> None:
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        raise OSError(errno.EINVAL, "is not a regular file", str(path))


def is_private(status: os.stat_result) -> bool:
    """Whether it is a regular file that only its owner may access, who is this user or root.

    Another owner would read what is written there, or had written what is read.
    """
    is_closed = stat.S_ISREG(status.st_mode) and not status.st_mode & 0o077
    return is_closed and status.st_uid in (0, os.geteuid())


def sync_directory(folder: Path) -> None:
    """Make changed names in a directory durable, where the file system supports it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError:  # not every network file system supports it
        return
    finally:
        os.close(handle)


def _replace(path: Path, data: bytes, *, is_durable: bool) -> None:
    """Write a temporary file and rename it to ``path``.

    Its name cannot be guessed and it must not exist, so that in a directory that others may write
    nobody can redirect the content with a link.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    handle = os.open(temporary, flags, 0o666)
    try:
        with open(handle, "wb") as file:
            file.write(data)
            if is_durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)  # only there if something failed


def storage_error(error: OSError, path: Path) -> BackendError:
    """Return the ``HoldfastError`` for an error of writing ``path``."""
    why = f"cannot write {path}: {error.strerror or error}"
    return StorageFull(why) if error.errno in (errno.ENOSPC, errno.EDQUOT) else BackendError(why)
