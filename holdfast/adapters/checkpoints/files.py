"""``CheckpointFiles`` of a directory."""

import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from holdfast.adapters.checkpoints.directory import is_inside
from holdfast.adapters.checkpoints.plain_files import CHUNK, opened
from holdfast.kit.files import storage_error, sync_directory
from holdfast.model.checkpoint_copies import CheckpointCopy
from holdfast.model.errors import BackendError
from holdfast.ports.checkpoint_files import SourceFile

_PARTIAL: Final = ".holdfast-restore-"
"""Prefix of a checkpoint that is being restored; no format takes hidden names for checkpoints."""


class DirectoryFiles:
    """Files of the checkpoints in ``folder``."""

    def __init__(
        self, folder: Path, parts: Callable[[str], tuple[str, ...] | None] = lambda _: None
    ) -> None:
        """Use a directory.

        Args:
            folder: the directory; it need not exist.
            parts: returns the files of a checkpoint that is files in several directories, relative
                to ``folder``; None for others. Such a checkpoint cannot be read or placed.

        """
        self._folder = folder
        self._parts = parts

    def files(self, name: str) -> tuple[SourceFile, ...]:
        """See ``CheckpointFiles.files``."""
        top = self._inside(self._folder, name)
        found: list[SourceFile] = []
        pending = [top]
        try:
            parts = self._parts(name)
            if parts is not None:
                top, pending = self._folder, [self._folder / part for part in parts]
            while pending:
                path = pending.pop()
                status = os.stat(path)  # model hubs store files as links into a cache
                if stat.S_ISDIR(status.st_mode):
                    if path.is_symlink() and path != top:
                        raise BackendError(f"{path}: a link to a directory cannot be copied")
                    pending += [path / each for each in os.listdir(path)]
                elif stat.S_ISREG(status.st_mode):
                    relative = "" if path == top else path.relative_to(top).as_posix()
                    found.append(
                        SourceFile(
                            path=relative, size=status.st_size, changed_ns=status.st_mtime_ns
                        )
                    )
                else:
                    raise BackendError(f"{path}: not a regular file, cannot be copied")
        except OSError as error:
            raise BackendError(f"cannot read {error.filename}: {error.strerror}") from error
        return tuple(sorted(found, key=lambda file: file.path))

    def read(self, name: str, path: str) -> Iterator[bytes]:
        """See ``CheckpointFiles.read``."""
        source = self._inside(self._folder, name)
        source = self._inside(source, path) if path else source
        try:
            with opened(source) as window:
                for offset in range(0, window.size, CHUNK):
                    yield window.read(offset, CHUNK)
        except OSError as error:
            raise BackendError(f"cannot read {source}: {error.strerror or error}") from error

    def place(
        self,
        copy: CheckpointCopy,
        files: Iterable[tuple[str, Iterable[bytes]]],
        make_room: Callable[[], None] | None = None,
    ) -> None:
        """See ``CheckpointFiles.place``."""
        target = self._inside(self._folder, copy.name)
        partial = self._folder / (_PARTIAL + secrets.token_hex(8))
        try:
            if make_room is None:
                _reject_existing(target)
            self._folder.mkdir(parents=True, exist_ok=True)
            try:
                for path, chunks in files:
                    place = self._inside(partial, path) if path else partial
                    _write(place, chunks, copy.saved_at)
                _set_directory_times(partial, copy.changed_at or copy.saved_at)
                if make_room is not None:
                    make_room()
                    _reject_existing(target)
                target.parent.mkdir(parents=True, exist_ok=True)
                os.rename(partial, target)
                sync_directory(target.parent)
            finally:
                _remove(partial)
        except OSError as error:
            raise storage_error(error, target) from error

    def _inside(self, folder: Path, name: str) -> Path:
        if not is_inside(name):
            raise BackendError(f"{name!r}: expected a path inside of {folder}")
        return folder / name


def _write(path: Path, chunks: Iterable[bytes], saved_at: datetime) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        os.utime(file.fileno(), ns=(_nanoseconds(saved_at),) * 2)
        os.fsync(file.fileno())
    sync_directory(path.parent)


def _reject_existing(target: Path) -> None:
    if os.path.lexists(target):
        raise BackendError(f"{target} already exists; rename or move it before the restore")


def _set_directory_times(path: Path, changed_at: datetime) -> None:
    """Give directories the time of the save: a restored checkpoint is as old as it was."""
    for folder, _, _ in os.walk(path):
        os.utime(folder, ns=(_nanoseconds(changed_at),) * 2)


def _nanoseconds(at: datetime) -> int:
    return (at - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1) * 1000


def _remove(path: Path) -> None:
    """Remove what a failed restore has left."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
