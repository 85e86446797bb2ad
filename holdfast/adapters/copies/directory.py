"""Copies of checkpoints in a directory, for example on another file system."""

import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from holdfast.kit.bounded_files import open_regular
from holdfast.kit.files import storage_error, sync_directory
from holdfast.model.errors import BackendError

_CHUNK: Final = 1 << 20
_PARTIAL: Final = ".holdfast-partial-"
"""Prefix of a file that is being written."""


class DirectoryCopies:
    """``CopyStore`` of a directory, which is created when something is written."""

    def __init__(self, folder: Path) -> None:
        """Use ``folder``."""
        self._folder = folder.absolute()

    @property
    def url(self) -> str:
        """See ``CopyStore.url``."""
        return str(self._folder)

    def list_keys(self) -> Iterator[tuple[str, int]]:
        """See ``CopyStore.list_keys``."""
        for root, folders, names in os.walk(self._folder, onerror=self._unless_missing):
            folders.sort()
            for name in sorted(names):
                path = Path(root, name)
                if name.startswith(_PARTIAL) or path.is_symlink():
                    continue
                try:
                    yield path.relative_to(self._folder).as_posix(), path.stat().st_size
                except FileNotFoundError:  # deleted meanwhile
                    continue

    def read(self, key: str) -> Iterator[bytes]:
        """See ``CopyStore.read``."""
        path = self._folder / key
        try:
            with open_regular(path) as (handle, _):
                while chunk := os.read(handle, _CHUNK):
                    yield chunk
        except OSError as error:
            raise BackendError(f"cannot read {path}: {error.strerror or error}") from error

    def write(self, key: str, chunks: Iterable[bytes]) -> None:
        """See ``CopyStore.write``."""
        path = self._folder / key
        partial = path.with_name(_PARTIAL + secrets.token_hex(8))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with partial.open("xb") as file:
                    for chunk in chunks:
                        file.write(chunk)
                    file.flush()
                    os.fsync(file.fileno())
                partial.replace(path)
                sync_directory(path.parent)
            finally:
                partial.unlink(missing_ok=True)
        except OSError as error:
            raise storage_error(error, path) from error

    def delete(self, key: str) -> None:
        """See ``CopyStore.delete``; also removes directories that become empty."""
        path = self._folder / key
        try:
            path.unlink(missing_ok=True)
            for parent in path.parents:
                if parent == self._folder:
                    return
                self._clear(parent)
                parent.rmdir()
        except OSError:  # not empty, or deleted meanwhile
            if path.exists():
                raise BackendError(f"cannot delete {path}") from None

    def _clear(self, folder: Path) -> None:
        """Delete what interrupted writes have left, if nothing else is in the directory."""
        names = os.listdir(folder)
        if all(name.startswith(_PARTIAL) for name in names):
            for name in names:
                (folder / name).unlink(missing_ok=True)

    def _unless_missing(self, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise BackendError(f"cannot read {error.filename}: {error.strerror}") from error
