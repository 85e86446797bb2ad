"""Files that others read while they are written."""

import os
from pathlib import Path


def write_atomically(path: Path, text: str) -> None:
    """Put ``text`` in place of the file; a reader sees the old or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def write_durably(path: Path, data: bytes) -> None:
    """Put ``data`` in place of the file, so that it is there after a loss of power.

    The temporary file beside it is new: nothing is written through a link that somebody put there.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
    with open(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_directory(path.parent)


def sync_directory(folder: Path) -> None:
    """Make names that were set in a directory durable, where the file system can."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError:  # not every network file system knows it
        return
    finally:
        os.close(handle)
