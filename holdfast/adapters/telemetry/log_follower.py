"""Follows a growing log, each line once, across restarts and rotations."""

import json
import os
from pathlib import Path
from typing import BinaryIO, Final

from holdfast.kit.files import storage_error, write_atomically
from holdfast.model.errors import BackendError

BLOCK: Final = 256 * 1024
"""Bytes per read; a longer line is read in parts."""


class LogFollower:
    """Follows one file. Lines count as processed after ``commit``."""

    def __init__(self, path: Path, position_file: Path) -> None:
        """Follow ``path`` from the position in ``position_file``, or from its start without one."""
        self._path = path
        self._position_file = position_file
        self._file: BinaryIO | None = None
        self._inode, self._offset = _position(position_file)

    def read(self) -> list[str]:
        """Next complete lines, without line ends; empty if there are none yet.

        Raises:
            BackendError: the log cannot be read.

        """
        try:
            return self._read()
        except OSError as error:
            raise BackendError(f"cannot read {self._path}: {error.strerror}") from error

    def commit(self) -> None:
        """Store the position: all lines read so far are processed.

        Raises:
            BackendError: the position cannot be written.

        """
        try:
            position = json.dumps({"inode": self._inode, "offset": self._offset})
            write_atomically(self._position_file, position)
        except OSError as error:
            raise storage_error(error, self._position_file) from error

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
        self._file = None

    def _read(self) -> list[str]:
        while (file := self._opened()) is not None:
            if os.fstat(file.fileno()).st_size < self._offset:  # truncated
                self._offset = 0
            file.seek(self._offset)
            data = file.read(BLOCK)
            complete = data[: data.rfind(b"\n") + 1] or (data if len(data) == BLOCK else b"")
            if complete:
                self._offset += len(complete)
                return [line for line in complete.decode(errors="replace").split("\n") if line]
            if not self._is_replaced():
                return []
            self.close()
            self._inode = self._offset = 0
        return []

    def _opened(self) -> BinaryIO | None:
        """File with the next lines; None if there is none yet."""
        if self._file is None:
            path = self._rotated_away() or self._path
            try:
                self._file = path.open("rb")
            except FileNotFoundError:
                return None
            inode = os.fstat(self._file.fileno()).st_ino
            if inode != self._inode:
                self._inode, self._offset = inode, 0
        return self._file

    def _rotated_away(self) -> Path | None:
        """Previously read file, if it was renamed while it was not followed."""
        siblings = self._path.parent.glob(f"{self._path.name}*")
        return next((path for path in siblings if _inode(path) == self._inode), None)

    def _is_replaced(self) -> bool:
        return _inode(self._path) not in (0, self._inode)


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0


def _position(file: Path) -> tuple[int, int]:
    try:
        position = json.loads(file.read_text(encoding="utf-8"))
        return int(position["inode"]), int(position["offset"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0, 0
