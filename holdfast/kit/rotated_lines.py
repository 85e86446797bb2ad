"""A private file of lines with a bounded size: full files are renamed, the oldest is removed."""

import os
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Final

from holdfast.kit.files import is_private, storage_error
from holdfast.model.errors import BackendError

FILE_BYTES: Final = 10_000_000
"""Size from which a file is renamed."""

FILES: Final = 10
"""Files that are kept, including the current one: at least two."""

_TAIL_BYTES: Final = 1 << 20
_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class RotatedLines:
    """Appends lines to ``path``; earlier files are ``path.1``, the newest, and so on.

    Thread-safe. A file has one writing process, and mode 0600. The file is opened for each line, so
    that another program may rename it, too.
    """

    def __init__(self, path: Path, *, size: int = FILE_BYTES, files: int = FILES) -> None:
        self._path = path
        self._size = size
        self._files = files
        self._lock = Lock()

    def check(self) -> None:
        """Verify that a line can be appended.

        Raises:
            BackendError: the file cannot be opened, or is not a private regular file.

        """
        with self._lock:
            os.close(self._open())

    def append(self, line: str) -> None:
        """Append a line.

        Raises:
            BackendError: the file cannot be written; ``StorageFull`` if no space is left.

        """
        data = line.encode() + b"\n"
        with self._lock:
            handle = self._open()
            try:
                end = os.fstat(handle).st_size
                if end and end + len(data) > self._size:
                    os.close(handle)
                    handle = -1
                    self._rotate()
                    handle = self._open()
                    end = 0
                is_cut = end and os.pread(handle, 1, end - 1) != b"\n"
                data = b"\n" + data if is_cut else data
                while data:
                    data = data[os.write(handle, data) :]
            except OSError as error:
                raise storage_error(error, self._path) from error
            finally:
                if handle >= 0:
                    os.close(handle)

    def last(self, count: int) -> list[str]:
        """Return the last complete lines, oldest first: of the current file and the one before.

        Args:
            count: maximum number of lines; of each file, the last MiB is read at most.

        Raises:
            BackendError: a file cannot be read.

        """
        with self._lock:
            current = self._tail(self._path)
            before = self._tail(self._earlier(1)) if len(current) < count else []
        return [*before, *current][-count:]

    def _tail(self, path: Path) -> list[str]:
        try:
            with open(os.open(path, _FLAGS & ~os.O_CREAT), "rb") as file:
                start = max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES)
                file.seek(start)
                lines = file.read().split(b"\n")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise storage_error(error, path) from error
        complete = lines[1 if start else 0 : -1]
        return [line.decode(errors="replace") for line in complete if line]

    def _open(self) -> int:
        try:
            handle = os.open(self._path, _FLAGS, 0o600)
        except OSError as error:
            raise storage_error(error, self._path) from error
        if is_private(os.fstat(handle)):
            return handle
        os.close(handle)
        raise BackendError(
            f"{self._path} is not a regular file that only this user may access; move it away, or "
            f"run: chown {os.geteuid()} {self._path}; chmod 600 {self._path}"
        )

    def _rotate(self) -> None:
        names = [self._path, *(self._earlier(number) for number in range(1, self._files))]
        for old, new in reversed(list(pairwise(names))):
            if old.exists():
                old.replace(new)

    def _earlier(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")
