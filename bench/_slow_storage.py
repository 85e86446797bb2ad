"""Serves a file system in user space (FUSE) whose reads take a time of their own for each file."""

import errno
import stat
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import mfusepy


class SlowStorage(mfusepy.Operations):
    """Files full of zeros.

    Args:
        delays: folder of files of the same names, whose text is how long a read takes, in seconds.
        size: bytes of each file.

    """

    use_ns = True

    def __init__(self, delays: Path, size: int) -> None:
        self._delays = delays
        self._size = size

    def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:  # noqa: ARG002
        """Return type and size."""
        if path == "/":
            return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
        if not self._delay(path).exists():
            raise mfusepy.FuseOSError(errno.ENOENT)
        return {"st_mode": stat.S_IFREG | 0o444, "st_nlink": 1, "st_size": self._size}

    def readdir(self, path: str, fh: int) -> Sequence[str]:  # noqa: ARG002
        """Return the names of the files."""
        return [".", "..", *(file.name for file in self._delays.iterdir())]

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:  # noqa: ARG002
        """Return zeros, late."""
        time.sleep(float(self._delay(path).read_text(encoding="ascii")))
        return bytes(max(0, min(size, self._size - offset)))

    def _delay(self, path: str) -> Path:
        return self._delays / path.removeprefix("/")


if __name__ == "__main__":
    mounted, folder, length = sys.argv[1:]
    mfusepy.FUSE(SlowStorage(Path(folder), int(length)), mounted, foreground=True)
