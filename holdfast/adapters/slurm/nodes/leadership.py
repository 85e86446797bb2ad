"""Leader election among the controllers of one state directory, by a file lock."""

import fcntl
from pathlib import Path
from typing import Final

from holdfast.kit.files import open_lock
from holdfast.model.errors import BackendError

FILE: Final = "controller.lock"


class FileLock:
    """A ``Leadership``; the kernel releases the lock when the process ends, however it ends."""

    def __init__(self, folder: Path, *, may_take: bool) -> None:
        """Open the lock file; ``is_held`` takes the lock when it is free.

        Raises:
            BackendError: the lock file cannot be created.

        """
        self._is_held = False
        try:
            if may_take:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = open(open_lock(folder / FILE), "rb") if may_take else None  # noqa: SIM115 - until ``close``
        except OSError as error:
            raise BackendError(f"cannot write {folder / FILE}: {error.strerror}") from error

    def is_held(self) -> bool:
        """See ``Leadership.is_held``; takes the lock if it is free."""
        if self._file is not None and not self._is_held:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            self._is_held = True
        return self._is_held

    def close(self) -> None:
        """Release the lock."""
        self._is_held = False
        if self._file is not None:
            self._file.close()
            self._file = None
